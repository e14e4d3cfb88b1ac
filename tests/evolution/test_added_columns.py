"""Columns of every Postgres type and unusual names, added at any time to tables with any history."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

from ingest.backfill.replay import Case, Delivery, replay
from tests.changelogs import Record, Topic, schema, write
from tests.merge.rules import UNAVAILABLE

pytestmark = [pytest.mark.spark, pytest.mark.long]

_TIME, _DATA = "io.debezium.time.", "io.debezium.data."
_POINT: list[dict[str, Any]] = [{"field": "x", "type": "double"}, {"field": "y", "type": "double"}]
_POINT += [{"field": "wkb", "type": "bytes", "optional": True}, {"field": "srid", "type": "int32", "optional": True}]
_COMPOSITE: list[dict[str, Any]] = [{"field": "a b", "type": "int32", "optional": True}]
_COMPOSITE += [{"field": "c,d", "type": "string", "optional": True}]
_LOCAL: dict[str, Any] = {"type": "int64", "name": f"{_TIME}MicroTimestamp", "optional": True}

TYPES: dict[str, tuple[dict[str, Any], Any, Any]] = {
    "boolean": ({"type": "boolean"}, True, True),
    "smallint": ({"type": "int16"}, -7, -7),
    "integer": ({"type": "int32"}, 7, 7),
    "bigint": ({"type": "int64"}, 9007199254740993, 9007199254740993),
    "real": ({"type": "float"}, 0.5, 0.5),
    "double precision": ({"type": "double"}, 1e300, 1e300),
    "text": ({"type": "string"}, "a'b\"c\\", "a'b\"c\\"),
    "bytea": ({"type": "bytes"}, "AAH/", "AAH/"),
    "numeric(10,2)": (
        {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "version": 1}
        | {"parameters": {"scale": "2", "connect.decimal.precision": "10"}},
        "MDk=",
        "123.45",
    ),
    "numeric": (
        {"type": "struct", "name": f"{_DATA}VariableScaleDecimal", "version": 1}
        | {"fields": [{"field": "scale", "type": "int32"}, {"field": "value", "type": "bytes"}]},
        {"scale": 3, "value": "MDk="},
        "12.345",
    ),
    "date": ({"type": "int32", "name": f"{_TIME}Date"}, 20513, "2026-03-01"),
    "time": ({"type": "int64", "name": f"{_TIME}MicroTime"}, 3_600_000_000, "01:00:00"),
    "timetz": ({"type": "string", "name": f"{_TIME}ZonedTime"}, "01:00:00Z", "01:00:00Z"),
    "timestamp": (
        {"type": "int64", "name": f"{_TIME}MicroTimestamp"},
        1_772_323_200_000_001,
        "2026-03-01T00:00:00.000001",
    ),
    "timestamp(3)": ({"type": "int64", "name": f"{_TIME}Timestamp"}, 1_772_323_200_001, "2026-03-01T00:00:00.001"),
    "timestamptz": (
        {"type": "string", "name": f"{_TIME}ZonedTimestamp"},
        "2026-03-01T00:00:00.000001Z",
        "2026-03-01T00:00:00.000001Z",
    ),
    "interval": ({"type": "int64", "name": f"{_TIME}MicroDuration"}, 86_400_000_000, 86_400_000_000),
    "jsonb": ({"type": "string", "name": f"{_DATA}Json"}, '{"a": [1, null]}', '{"a": [1, null]}'),
    "xml": ({"type": "string", "name": f"{_DATA}Xml"}, "<a/>", "<a/>"),
    "uuid": (
        {"type": "string", "name": f"{_DATA}Uuid"},
        "7c1f0c1e-0000-4000-8000-000000000001",
        "7c1f0c1e-0000-4000-8000-000000000001",
    ),
    "ltree": ({"type": "string", "name": f"{_DATA}Ltree"}, "a.b", "a.b"),
    "enum": ({"type": "string", "name": f"{_DATA}Enum", "parameters": {"allowed": "on,off"}}, "on", "on"),
    "bit(9)": ({"type": "bytes", "name": f"{_DATA}Bits", "parameters": {"length": "9"}}, "AQE=", 257),
    "integer[]": ({"type": "array", "items": {"type": "int32", "optional": True}}, [1, None], [1, None]),
    "timestamp[]": ({"type": "array", "items": _LOCAL}, [1_772_323_200_000_000], ["2026-03-01T00:00:00"]),
    "hstore": (
        {"type": "map", "keys": {"type": "string"}, "values": {"type": "string", "optional": True}},
        {"a b": "c", "d": None},
        {"a b": "c", "d": None},
    ),
    "point": (
        {"type": "struct", "name": "io.debezium.data.geometry.Point", "fields": _POINT},
        {"x": 1.5, "y": 2.5, "wkb": "AQ==", "srid": None},
        {"x": 1.5, "y": 2.5, "wkb": "AQ==", "srid": None},
    ),
    "composite": ({"type": "struct", "fields": _COMPOSITE}, {"a b": 1, "c,d": "e"}, {"a b": 1, "c,d": "e"}),
}
"""Postgres type → the field in an event's schema, a value as it is sent, the same value as it is read."""

NAMES = [
    "unit price",
    "a.b",
    'quo"te',
    "back`tick",
    "com,ma",
    "semi;colon",
    "{brace}",
    "(parenthesis)",
    "tab\there",
    "new\nline",
    "eq=ual",
    "émoji 😀",
    "x" * 63,
    "select",
    "Order",
    "'single'",
    "per%cent",
    "back\\slash",
    "$dollar",
    "1",
    "a/b",
    " leading",
    "trailing ",
    "table",
    "before",
    "payload",
    "offset",
    "_x",
    "col-1",
    "straße",
]


@dataclass
class TableCase:
    """A table under construction: its changelog and its expected rows."""

    name: str
    key: str
    settings: dict[str, Any]
    topic: Topic
    columns: list[dict[str, Any]]
    rows: list[dict[str, Any]] = field(default_factory=list)
    lsn: int = 100

    def next(self, op: str, after: dict[str, Any] | None = None, before: dict[str, Any] | None = None) -> None:
        self.lsn += 10
        self.topic.change(op, self.lsn, after, before, schema=schema(*self.columns))

    def create(self, sent: dict[str, Any], read: dict[str, Any] | None = None) -> None:
        self.next("c", sent)
        self.rows.append(dict(read or sent))


def column(name: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"field": name, "optional": True} | TYPES[kind][0] | more


def table(number: int, past: str, key: str, history: bool) -> TableCase:
    name = f"t{number}"
    topic = Topic(f"shop.public.{name}", ("public", name), key=() if past == "keyless" else (key,))
    table_case = TableCase(
        f"public.{name}", key, {"history": history}, topic, [column(key, "integer"), column("v", "integer")]
    )
    table_case.create({key: 1, "v": 1})
    if past == "widened":
        table_case.columns[1] = column("v", "bigint")
        table_case.create({key: 2, "v": 1 << 40})
    if past == "deleted":
        table_case.create({key: 2, "v": 2})
        table_case.next("d", before=table_case.rows.pop())
        table_case.topic.tombstone({key: 2})
    if past == "waiting":
        table_case.columns.append(column("w", "text"))
        table_case.rows[0]["w"] = None
        table_case.next("u", {key: 3, "v": 3, "w": UNAVAILABLE})
    if past == "defaulted":
        table_case.columns.append(column("d", "integer", optional=False, default=7))
        table_case.rows[0]["d"] = 7
        table_case.create({key: 2, "v": 2, "d": 8})
    return table_case


HISTORIES: dict[str, tuple[str, bool]] = {
    "plain": ("id", False),
    "widened": ("id", False),
    "deleted": ("id", False),
    "waiting": ("id", False),
    "defaulted": ("id", False),
    "keyless": ("id", False),
    "mapped": ("order no", False),
    "versions": ("id", True),
    "versions of a mapped table": ("a.b,c", True),
}
"""History of a table before the columns are added → its key, and whether it keeps row versions."""


def tables() -> list[TableCase]:
    return [table(n, past, *settings) for n, (past, settings) in enumerate(HISTORIES.items())]


def add(table_case: TableCase, added: Sequence[tuple[str, str]]) -> None:
    """Adds columns and a row with values; older rows read null there."""
    for name, kind in added:
        table_case.columns.append(column(name, kind))
        for row in table_case.rows:
            row[name] = None
    row = dict.fromkeys(c["field"] for c in table_case.columns) | {table_case.key: 10 * len(table_case.columns), "v": 5}
    row |= {"d": 9} if "d" in row else {}
    sent, read = ({name: TYPES[kind][form] for name, kind in added} for form in (1, 2))
    table_case.create(row | sent, row | read)


def changelog(seed: int) -> tuple[list[TableCase], list[list[Record]]]:
    """Returns the tables, and the records of each batch."""
    random = Random(seed)
    kinds, names = [*TYPES], [*NAMES]
    every = tables()
    batches = [[record for table_case in every for record in table_case.topic.records]]
    plans = {}
    for table_case in every:
        random.shuffle(kinds)
        random.shuffle(names)
        plans[table_case.name] = list(zip(names, kinds * 2, strict=False))
    for turn in range(3):
        begun = {table_case.name: len(table_case.topic.records) for table_case in every}
        for table_case in every:
            planned = plans[table_case.name][turn::3]
            add(table_case, planned[:-1])
            add(table_case, planned[-1:])
        batches.append(
            [record for table_case in every for record in table_case.topic.records[begun[table_case.name] :]]
        )
    for table_case in every:
        for row in table_case.rows:  # the last batch widens columns, in tables that have column mapping by now
            row["v"] = None if row["v"] is None else str(row["v"])
    begun = {table_case.name: len(table_case.topic.records) for table_case in every}
    for table_case in every:
        table_case.columns[1] = column(
            "v", "numeric(10,2)", parameters={"scale": "2", "connect.decimal.precision": "30"}
        )
        row = dict.fromkeys(c["field"] for c in table_case.columns)
        row |= {table_case.key: 5, "v": "AMg="} | ({"d": 9} if "d" in row else {})
        table_case.create(row, row | {"v": "2.00"})
    batches.append([record for table_case in every for record in table_case.topic.records[begun[table_case.name] :]])
    return every, batches


def comparable(rows: Sequence[dict[str, Any]]) -> list[str]:
    def plain(name: str, value: Any) -> Any:
        return float(value) if name == "v" and value is not None else value

    return sorted(json.dumps({k: plain(k, v) for k, v in row.items()}, sort_keys=True) for row in rows)


@pytest.fixture(scope="module")
def replayed(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[TableCase], Case, dict[str, Any]]:
    every, batches = changelog(11)
    size = max(map(len, batches))
    padding = Topic("shop.heartbeat")
    records: list[Record] = []
    for batch in batches:  # padded to equal sizes, so that each is one capture batch
        records += batch + [padding.record(None, None) for _ in range(size - len(batch))]
    root = tmp_path_factory.mktemp("added")
    table_case = {"tables": {t.name: t.settings for t in every}}
    folder = write(root / "events", records, table_case)
    case = Case("added", (folder / "events.jsonl",), folder / "tables.json", root / "out")
    ((_, summary),) = replay(spark, [case], Delivery(size), "jsonl")
    return every, case, summary


@pytest.mark.parametrize("number", range(len(HISTORIES)), ids=list(HISTORIES))
def test_added_columns_hold_their_values(number: int, replayed: tuple[list[TableCase], Case, dict[str, Any]]) -> None:
    every, case, summary = replayed
    table_case = every[number]
    assert summary["quarantine"] == []
    lines = (case.out / summary["tables"][table_case.name]["file"]).read_text(encoding="utf-8").splitlines()
    assert comparable([json.loads(line) for line in lines]) == comparable(table_case.rows)


def test_duckdb_reads_added_columns(replayed: tuple[list[TableCase], Case, dict[str, Any]]) -> None:
    every, case, _ = replayed
    duckdb.sql("LOAD delta")
    for table_case in every:
        silver = case.out / "silver" / case.name / table_case.name
        rows = duckdb.sql(f"SELECT * FROM delta_scan('{silver}')")
        assert len(rows.fetchall()) == len(table_case.rows)
        assert {c["field"] for c in table_case.columns} <= set(rows.columns)
