"""A changelog gives the same rows in each form of its records."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from ingest.backfill.replay import Case, Delivery, replay
from ingest.batches.rules import DEFAULT_PLACEHOLDER
from ingest.changelog import envelope
from ingest.changelog.envelope import CLOUD_EVENT, NOT_JSON, RECORD, UNKNOWN_OP, UNWRAPPED_ROW, events
from ingest.changelog.forms import FORM_HEADER, Form
from ingest.changelog.naming import Naming
from ingest.jvm.library import ENVIRONMENT
from ingest.testing import parse_events
from ingest.testing.changelogs import as_debezium, random_changelog
from tests.changelogs import Record, schema, write

pytestmark = pytest.mark.spark
CASES = 20
TABLE = "forms.item"
COLUMNS = (("case", "int64"), ("id", "int64"), ("plain", "string"), ("number", "int64"), ("toasted", "string"))
ROW_SCHEMA = {**schema(*COLUMNS)["fields"][1], "name": "forms.item.Value"}
ADDED = {"__op": "string", "__schema": "string", "__table": "string", "__lsn": "int64", "__source_ts_ms": "int64"}
Value = dict[str, Any]


def unwrapped(event: Value) -> Value:
    """Returns the row as ExtractNewRecordState leaves it: delete.tombstone.handling.mode rewrite, with add.fields."""
    source = event["source"]
    row: Value = event["after"] or event["before"]
    added = {"__op": event["op"], "__schema": source["schema"], "__table": source["table"], "__lsn": source["lsn"]}
    deleted = "true" if event["op"] == "d" else "false"
    return row | added | {"__source_ts_ms": source["ts_ms"], "__deleted": deleted}


def cloud_event(event: Value) -> Value:
    """Returns the CloudEvents envelope that Debezium's converter writes."""
    attributes = {f"iodebezium{name.replace('_', '')}": str(value) for name, value in event["source"].items()}
    fixed = {"id": "name:forms", "source": "/debezium/postgresql/forms", "specversion": "1.0", "time": "2026-01-01"}
    data = {"before": event["before"], "after": event["after"]}
    return fixed | {"iodebeziumop": event["op"]} | attributes | {"data": data}


def with_schema(value: Value, of_value: Value) -> Value:
    if "specversion" in value:
        return value | {"data": {"schema": of_value, "payload": value["data"]}}
    return {"schema": of_value, "payload": value}


def unwrapped_schema() -> Value:
    snapshot = {"type": "string", "name": "io.debezium.data.Enum", "parameters": {"allowed": "true,last"}}
    added = [
        {"type": kind, "optional": True, "field": name} for name, kind in (ADDED | {"__deleted": "string"}).items()
    ]
    fields = [*ROW_SCHEMA["fields"], snapshot | {"field": "__snapshot"}, *added]
    return {name: value for name, value in ROW_SCHEMA.items() if name != "field"} | {"fields": fields}


FORMS: dict[str, tuple[Callable[[Value], Value], Value]] = {
    "debezium": (lambda event: event, schema(*COLUMNS)),
    "unwrapped": (unwrapped, unwrapped_schema()),
    "cloudevents": (cloud_event, schema(*COLUMNS)),
}


def records() -> list[Record]:
    """Returns random changelogs, in any order, with repeated and partial images. An unwrapped update doesn't say what
    the row was before."""
    random = Random(7)
    found: list[Record] = []
    for case in range(CASES):
        changes = [replace(e, old_key=None, before=None) for e in random_changelog(random, 12)]
        found += as_debezium(changes, TABLE, case, DEFAULT_PLACEHOLDER)
    return found


def rows(folder: Path, summary: dict[str, Any]) -> list[str]:
    (table,) = summary["tables"].values()
    return sorted((folder / table["file"]).read_text(encoding="utf-8").splitlines())


@pytest.fixture(params=["on", pytest.param("off", marks=pytest.mark.long)], ids=["with the library", "without it"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(ENVIRONMENT, request.param)
    envelope._projections.cache_clear()
    yield
    envelope._projections.cache_clear()


@pytest.mark.long
@pytest.mark.parametrize("has_schema", [False, True], ids=["schemaless", "schema"])
@pytest.mark.usefixtures("library")
def test_forms_of_a_changelog_give_the_same_rows(spark: SparkSession, tmp_path: Path, has_schema: bool) -> None:
    cases = []
    for name, (form, of_value) in FORMS.items():
        written = []
        for record in records():
            value = record["value"] and form(record["value"])
            written.append(record | {"value": value and (with_schema(value, of_value) if has_schema else value)})
        folder = write(tmp_path / f"{name}-events", written, {"topic_tables": {TABLE: TABLE}})
        cases.append(Case(name, (folder / "events.jsonl",), folder / "tables.json", tmp_path / name))
    found = {
        case.name: (rows(case.out, summary), summary) for case, summary in replay(spark, cases, Delivery(), "jsonl")
    }
    expected, accounts = found.pop("debezium")
    assert len(expected) > CASES
    for name, (given, summary) in found.items():
        assert given == expected, name
        assert [summary[n] for n in ("read", "applied", "quarantined")] == [
            accounts[n] for n in ("read", "applied", "quarantined")
        ], name
        assert summary["tables"].keys() == accounts["tables"].keys()


@pytest.mark.parametrize("size", [0, pytest.param(1, marks=pytest.mark.long)], ids=["one batch", "one record a batch"])
def test_upserts_give_the_same_rows(spark: SparkSession, tmp_path: Path, size: int) -> None:
    """Without positions: in the order of the topic."""
    line = "c1@10(x,1,a) c2@20(y,2,b) u1@30(z,3,~) d2@40 c2@50(y,5,c) c3@60(x,6,~) d3@70 d2>4@80 c4@80(v,7,?)"
    changes = as_debezium(parse_events(line, [name for name, _ in COLUMNS[2:]]), TABLE, 0, DEFAULT_PLACEHOLDER)
    upserts = [r | {"value": None if r["value"]["op"] == "d" else r["value"]["after"]} for r in changes]
    tables = {"topic_tables": {TABLE: TABLE}, "tables": {TABLE: {}}}
    cases = []
    for name, written in (("debezium", changes), ("upsert", upserts)):
        folder = write(tmp_path / f"{name}-events", written, tables)
        cases.append(Case(name, (folder / "events.jsonl",), folder / "tables.json", tmp_path / name))
    found = [rows(case.out, summary) for case, summary in replay(spark, cases, Delivery(size), "jsonl")]
    assert found[0] == found[1]
    assert [(row["id"], row["toasted"]) for row in map(json.loads, found[1])] == [(1, None), (4, "c")]


def read(spark: SparkSession, values: list[Any], naming: Naming, key: bytes | None = b'{"id":1}') -> list[Row]:
    """Returns the events of values: bytes, or what is written as JSON."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    texts = [v if isinstance(v, bytes) else json.dumps(v, separators=(",", ":")).encode() for v in values]
    rows = [("t", 0, n, at, None, key and bytearray(key), bytearray(text)) for n, text in enumerate(texts)]
    return events(spark.createDataFrame(rows, RECORD), naming).orderBy("offset").collect()


NAMED = Naming(topic_tables=(("t", "my.table"),))


def test_schema_without_a_payload_is_a_null_tombstone(spark: SparkSession) -> None:
    nothing = {"schema": {"type": "struct", "fields": [], "optional": True}, "payload": None}
    for naming in (NAMED, Naming(forms=(("t", Form.UNWRAPPED),), topic_tables=(("t", "my.table"),))):
        (row,) = read(spark, [nothing], naming)
        assert (row.value, row.op, row.problem) == (None, "tombstone", None)
    (row,) = read(spark, [nothing], Naming(topic_tables=(("other", "my.table"),)))
    assert row.problem is not None


def test_text_of_a_row_stays_as_it_is(spark: SparkSession) -> None:
    text = rb'{ "id":1, "n": 12345678901234567890.12345678901234567890, "s":"\"data\":1} \"payload\":{" }'
    data = (
        b'{"specversion":"1.0","iodebeziumop":"c","iodebeziumtable":"t","data":{"before":null,"after":' + text + b"}}"
    )
    inside = b'{"schema":{"type":"struct","fields":[]},"payload":' + text + b"}"
    added = text.rstrip(b" }") + b', "__op":"c", "__deleted": "false" }'
    found = read(spark, [text, data, inside, added], NAMED)
    assert [row.op for row in found] == ["u", "c", "u", "c"]
    assert all(text.rstrip(b" }") in bytes(row.value) for row in found)
    assert not any(b"__op" in bytes(row.value) for row in found)


def test_rewritten_record_tells_its_form_and_is_not_rewritten_again(spark: SparkSession) -> None:
    (row,) = read(spark, [{"id": 1, "__op": "c"}], NAMED)
    assert [(h.key, bytes(h.value)) for h in row.headers] == [(FORM_HEADER, b"unwrapped")]
    again = Naming(topic_tables=NAMED.topic_tables, forms=(("t", Form.UPSERT),))
    record = spark.createDataFrame([tuple(row)[:7]], RECORD)
    (same,) = events(record, again).collect()
    assert (same.value, same.headers, same.op) == (row.value, row.headers, "c")


def test_unwrapped_record_has_the_time_and_position_that_it_tells(spark: SparkSession) -> None:
    told = {"__lsn": 77, "__source_ts_ms": 1, "__table": "item", "__schema": "s", "__name": "srv", "__db": "d"}
    naming = Naming(forms=(("other", Form.UPSERT),))
    first, second = read(spark, [{"id": 1, "__op": "u"} | told, {"id": 1, "__table": "item"}], naming)
    assert (first.source_table, first.position.major, first.source_ts.timestamp(), first.origin) == (
        *("s.item", 77, 0.001, "srv/d"),
    )
    assert (second.source_table, second.position.major, second.position.offset) == ("item", 0, 1)
    assert second.source_ts == second.timestamp


@pytest.mark.parametrize(
    ("form", "value", "op"),
    [
        (Form.DEBEZIUM, {"id": 1}, None),
        (Form.UNWRAPPED, {"id": 1}, "u"),
        (Form.UNWRAPPED, {"id": 1, "op": "x", "__deleted": "true"}, "d"),
        (Form.UPSERT, {"id": 1, "op": "d", "source": "s"}, "u"),
        (Form.UPSERT, {"id": 1, "__deleted": "true"}, "u"),
    ],
)
def test_declared_form_decides(spark: SparkSession, form: Form, value: Value, op: str | None) -> None:
    (row,) = read(spark, [value], Naming(forms=(("t", form),)))
    assert row.op == op
    if form is Form.UPSERT:
        assert json.loads(bytes(row.value))["after"] == value


def test_values_that_tell_no_form_keep_their_problem(spark: SparkSession) -> None:
    twice = b'{"schema":{"type":"struct"},"payload":{"id":1},"more":1}'
    encoded = {"specversion": "1.0", "iodebeziumop": "c", "data_base64": base64.b64encode(b"avro").decode()}
    values = [{"id": 1}, {"specversion": "1.0", "data": {"id": 1}}, encoded, b"junk", [1], twice, {"source": {}}]
    problems = [row.problem for row in read(spark, values, Naming())]
    assert problems == [UNWRAPPED_ROW, CLOUD_EVENT, CLOUD_EVENT, NOT_JSON, NOT_JSON, UNWRAPPED_ROW, UNKNOWN_OP]
    named = [row.problem for row in read(spark, [twice, values[1]], NAMED)]
    assert named == [UNWRAPPED_ROW, CLOUD_EVENT]
