"""Every connector's positions are compared, parsed, cut and invented by its own module; another one is one module
more."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.backfill.recomputing import committed_by
from ingest.changelog import dialects, envelope
from ingest.changelog.dialects import registry
from ingest.changelog.dialects.dialect import Dialect, LogEnd, Place, PositionText
from ingest.changelog.naming import Naming
from ingest.changelog.point import Point, within
from ingest.changelog.position import position, source_type

EXAMPLES: dict[str, list[dict[str, Any]]] = {
    "postgresql": [{"lsn": 120, "sequence": '["100","120"]'}, {"lsn": 120}, {"sequence": '["100","120"]'}],
    "mysql": [{"file": "binlog.000003", "pos": 4567, "row": 2}],
    "sqlserver": [
        {"commit_lsn": "0000002a:00000a60:0005", "change_lsn": "0000002a:00000a60:0003", "event_serial_no": 1},
        {"commit_lsn": "0000002a:00000a60:0005"},
    ],
}
"""The fields of `source` that carry the position, by the first name of the connector."""
_BLOCK = (0x2A << 32) + 0xA60
_BELOW_ALL = -(1 << 62)


def _parse_scn(text: str) -> tuple[int, int | None] | None:
    found = re.fullmatch(r"scn:(\d+)", text)
    return None if found is None else (int(found[1]), None)


def _scn(source: Column) -> dict[str, Column]:
    return {f"_{name}": source[name].try_cast("bigint") for name in ("scn", "commit_scn")}


def _place_by_scn(source: Column, _: Column) -> Place:
    scn = F.col("_scn")
    return Place(F.coalesce("_commit_scn", scn), scn, F.when(source["scn"].isNotNull(), 0))


ORACLE = Dialect(
    connectors=("oracle",),
    fields=(T.StructField("scn", T.StringType()), T.StructField("commit_scn", T.StringType())),
    numbers=_scn,
    place=_place_by_scn,
    log_end=lambda source: LogEnd(F.col("_commit_scn"), F.when(source["scn"].isNotNull(), 0)),
    position_text=PositionText("an SCN", "scn:2122185", _parse_scn),
)
"""All that another connector would need."""
SCNS = {"scn": "99", "commit_scn": "1100"}


@pytest.fixture
def with_oracle(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registry, "DIALECTS", (*registry.DIALECTS, ORACLE))
    envelope._projections.cache_clear()
    yield
    envelope._projections.cache_clear()


def sources(spark: SparkSession, *blocks: dict[str, Any], op: str = "u") -> DataFrame:
    """A row for each block, with the columns that places are read from."""
    texts = spark.createDataFrame(
        [(n, json.dumps(block), op) for n, block in enumerate(blocks)], "n int, t string, op string"
    )
    parsed = texts.select("n", "op", F.from_json("t", source_type()).alias("source"))
    return parsed.select("*", *(c.alias(name) for name, c in registry.source_numbers(F.col("source")).items()))


def positions(spark: SparkSession, *blocks: dict[str, Any], op: str = "u") -> list[tuple[int, ...]]:
    at = position(F.col("source"), F.col("op"), F.lit(7).cast("bigint"), F.lit(0))
    rows = sources(spark, *blocks, op=op).orderBy("n").select(at.alias("position")).collect()
    return [tuple(row["position"]) for row in rows]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("op", "block", "expected"),
    [
        ("u", {"lsn": 120}, (120, 0, 0, 1)),
        ("u", {"lsn": 120, "sequence": '["100","120"]'}, (120, 0, 0, 1)),
        ("u", {"lsn": 120, "sequence": '["150","120"]'}, (150, 0, -30, 1)),
        ("r", {"lsn": 120, "sequence": '["120","120"]'}, (120, 0, _BELOW_ALL, 0)),
        ("r", {"sequence": '["150","160"]', "snapshot": "incremental"}, (150, 0, _BELOW_ALL, 0)),
        ("r", {"sequence": '[null,"160"]', "snapshot": "incremental"}, (160, 0, 0, 0)),
        ("r", {"connector": "postgresql", "snapshot": "incremental"}, (0, 0, 0, 2)),
        ("r", {"connector": "mysql", "snapshot": "incremental"}, (0, 0, 0, 1)),
        ("u", {"file": "binlog.000010", "pos": 4, "row": 1}, (10, 4, 1, 1)),
        ("r", {"connector": "mariadb", "file": "binlog.000010", "pos": 4, "row": 0}, (10, 4, 0, 0)),
        ("u", EXAMPLES["sqlserver"][0], (_BLOCK, _BLOCK, (3 << 32) + 1, 1)),
        ("r", EXAMPLES["sqlserver"][1], (_BLOCK, 0, 0, 0)),
        ("u", {"connector": "another", "commit_lsn": "25769803776", "change_lsn": "25769803777"}, (0, 0, 0, 1)),
        ("u", {}, (0, 0, 0, 1)),
        ("r", {}, (0, 0, 0, 1)),
    ],
)
def test_positions_come_from_the_fields_of_the_connector(
    spark: SparkSession, op: str, block: dict[str, Any], expected: tuple[int, ...]
) -> None:
    assert positions(spark, block, op=op) == [(0, *expected, 7, 0)]


@pytest.mark.spark
@pytest.mark.usefixtures("with_oracle")
def test_a_dialect_gives_no_place_to_events_of_other_connectors(spark: SparkSession) -> None:
    examples = EXAMPLES | {"oracle": [SCNS]}
    placed = [dialect for dialect in registry.DIALECTS if dialect.place]
    assert [dialect.connectors[0] for dialect in placed] == list(examples)
    blocks = [(name, block) for name, of_one in examples.items() for block in of_one]
    for op in ("u", "r"):
        rows = sources(spark, *(block for _, block in blocks), op=op).orderBy("n")
        for dialect in placed:
            assert dialect.place and dialect.log_end
            at, end = dialect.place(F.col("source"), F.col("op")), dialect.log_end(F.col("source"))
            columns = (at.major, at.minor, at.ordinal, end.major, end.minor)
            found = rows.select(*(column.isNotNull() for column in columns)).collect()
            recognised = {name for (name, _), row in zip(blocks, found, strict=True) if any(row)}
            assert recognised == {dialect.connectors[0]}, op


def test_every_module_of_a_connector_is_registered() -> None:
    modules = [import_module(f"{dialects.__name__}.{module.name}") for module in iter_modules(dialects.__path__)]
    assert {m.DIALECT for m in modules if hasattr(m, "DIALECT")} == set(registry.DIALECTS)


@pytest.mark.usefixtures("with_oracle")
def test_dialects_share_no_names() -> None:
    for names in (
        [name for dialect in registry.DIALECTS for name in dialect.connectors],
        [field.name for field in source_type().fields],
    ):
        assert len(names) == len(set(names))


@pytest.mark.spark
def test_numbers_of_dialects_have_names_of_their_own(spark: SparkSession) -> None:
    source = F.lit(None).cast(source_type())
    names = [name for dialect in registry.DIALECTS if dialect.numbers for name in dialect.numbers(source)]
    assert len(names) == len(set(names)) == len(registry.source_numbers(source))


@pytest.mark.spark
@pytest.mark.parametrize(("major", "minor"), [(4711, None), (3, 77), (3, 0)])
def test_a_read_of_a_dump_stands_where_it_was_taken(spark: SparkSession, major: int, minor: int | None) -> None:
    block = dict(registry.dump_fields(major, minor))
    assert positions(spark, block, op="r") == [(0, major, minor or 0, 0, 0, 7, 0)]


@pytest.mark.spark
def test_any_place_can_be_expressed(spark: SparkSession) -> None:
    at = (_BLOCK, 5, 1 - (1 << 62))
    fields = registry.exact_fields(*(F.lit(number) for number in at))
    row = spark.range(1).select(F.to_json(F.struct(*(c.alias(name) for name, c in fields.items()))).alias("t")).first()
    assert row is not None
    assert positions(spark, json.loads(row["t"]), op="r") == [(0, *at, 0, 7, 0)]


def test_a_position_is_read_in_each_dialects_form() -> None:
    for dialect in registry.DIALECTS:
        if dialect.position_text:
            point = Point.parse(dialect.position_text.example)
            assert (point.major, point.minor) == dialect.position_text.parse(dialect.position_text.example)
            assert Point.parse(point.text) == point
    assert registry.position_forms() == "an LSN (0/16B3748) or a binlog position (binlog.000003:4567)"


def test_a_text_that_may_be_a_time_is_one() -> None:
    assert Point.parse("2026-01-31T12:00") == Point.parse("2026-01-31T12:00:00Z")
    with pytest.raises(ValueError, match=r"'scn:2122190' is neither .* \(0/16B3748, binlog\.000003:4567\)"):
        Point.parse("scn:2122190")


def _captured(spark: SparkSession, blocks: list[dict[str, Any]]) -> DataFrame:
    """Returns the events of one topic, in which each block is the `source` of a change."""
    rows = [
        ("t", 0, n, None, None, bytearray(b"{}"), bytearray(json.dumps({"op": "c", "source": block}).encode()))
        for n, block in enumerate(blocks)
    ]
    return envelope.events(spark.createDataFrame(rows, envelope.RECORD), Naming())


@pytest.mark.spark
@pytest.mark.usefixtures("with_oracle")
def test_another_connector_is_one_dialect_more(spark: SparkSession) -> None:
    blocks: list[dict[str, Any]] = [
        {"connector": "oracle", "scn": "1050", "commit_scn": "1100"},
        {"connector": "oracle", "scn": "99", "commit_scn": "1100"},
        {"scn": "1070", "commit_scn": "1090"},  # without the connector's name
        {"connector": "oracle", "scn": "1080", "commit_scn": "1200"},
        {"connector": "postgresql", "lsn": 120},
        {"connector": "mysql", "file": "binlog.000010", "pos": 4, "row": 1},
    ]
    captured = _captured(spark, blocks)
    rows = captured.orderBy("offset").select("position", "progress").collect()
    places = [tuple(row["position"])[1:5] for row in rows]
    by_scn = [(1100, 1050, 0, 1), (1100, 99, 0, 1), (1090, 1070, 0, 1), (1200, 1080, 0, 1)]
    assert places == [*by_scn, (120, 0, 0, 1), (10, 4, 1, 1)]
    assert [row["progress"] and tuple(row["progress"])[1:] for row in rows] == [
        *((1100, 0), (1100, 0), (1090, 0), (1200, 0)),
        *(None, (10, 4)),
    ]
    point = Point.parse("scn:1100")
    of_oracle = captured.where(F.col("offset") < 4)
    order = [row["offset"] for row in of_oracle.orderBy("position").collect()]
    assert order == [2, 1, 0, 3]
    assert {row["offset"] for row in of_oracle.where(within(None, point)).collect()} == {2}
    assert {row["offset"] for row in of_oracle.where(committed_by(point, of_oracle)).collect()} == {0, 1, 2}
