"""Columns of a source may have any name, except reserved ones, whose events are quarantined with the reason; other
tables go on."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ingest.backfill.replay import Case, Delivery, replay
from ingest.changelog.reserved_names import RESERVED_NAMES
from tests.changelogs import Record, Topic, write
from tests.column_names import DrawnColumn, draw_columns, internal_names
from tests.merge.rules import UNAVAILABLE, moves_to

pytestmark = pytest.mark.spark
KEYED, BAG, VERSIONED = "public.keyed", "public.bag", "public.versioned"
TABLES = (KEYED, BAG, VERSIONED)
SEED = int(os.environ.get("FUZZ_SEED", "1"))
COLUMN_COUNT = 16
VERSIONS = ("first", "last", "late", "moved", "waited for", "a", "b", "c", "d", "absent")


def row(columns: list[DrawnColumn], i: int, version: str) -> dict[str, Any]:
    image: dict[str, Any] = {"id": i, "version": version}
    for column in columns:
        image |= column.values(VERSIONS.index(version))
    return image


def without_texts(columns: list[DrawnColumn], i: int, version: str) -> dict[str, Any]:
    """Returns an image whose texts are unavailable."""
    image = row(columns, i, version) | {"version": UNAVAILABLE}
    texts = (column for column in columns if column.type == "string")
    return image | {name: UNAVAILABLE for column in texts for name in (column.name, column.control)}


def changelog(columns: list[DrawnColumn]) -> list[Record]:
    """Returns every kind of change, of rows with these columns, in a table with a key, in one that keeps its history,
    and in one without a key."""
    records = []
    for table in (KEYED, VERSIONED):
        t = Topic(f"shop.{table}", ("public", table.removeprefix("public.")))
        for i in range(1, 7):
            t.change("c", 10 + i, row(columns, i, "first"))
        t.change("u", 30, row(columns, 1, "last"), before=row(columns, 1, "first"))
        t.change("u", 20, row(columns, 1, "late"))
        t.change("d", 31, before=row(columns, 2, "first"))
        t.tombstone({"id": 2})
        t.change("u", 32, row(columns, 13, "moved"), before=row(columns, 3, "first"))
        t.change("u", 33, without_texts(columns, 4, "first"))
        t.change("d", 34, before={"id": 5}, headers=moves_to(15))
        t.change("c", 34, without_texts(columns, 15, "first"))
        t.change("u", 40, without_texts(columns, 20, "waited for"))
        t.change("u", 39, row(columns, 20, "waited for"))
        records += t.records
    bag = Topic(f"shop.{BAG}", ("public", "bag"), key=())
    for number, version in enumerate(("a", "a", "b", "c")):
        bag.change("c", 10 + number, row(columns, 1, version))
    bag.change("d", 20, before=row(columns, 1, "a"))
    bag.change("d", 21, before=row(columns, 1, "absent"))
    bag.change("u", 22, row(columns, 1, "d"), before=row(columns, 1, "b"))
    return records + bag.records


ROWS = [(1, "last"), (4, "first"), (6, "first"), (13, "moved"), (15, "first"), (20, "waited for")]
EXPECTED = {KEYED: ROWS, VERSIONED: ROWS, BAG: [(1, "a"), (1, "c"), (1, "d")]}
"""Table → `id` and `version` of its rows after `changelog`."""


def replayed(
    spark: SparkSession, folder: Path, records: list[Record], tables: dict[str, Any], batch_size: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the rows of each table, and the summary. `tables`: the declarations of tables."""
    written = write(folder / "events", records, {"tables": tables})
    case = Case("names", (written / "events.jsonl",), written / "tables.json", folder / "out")
    ((_, summary),) = replay(spark, [case], Delivery(batch_size), "jsonl")
    rows = {
        table: [json.loads(line) for line in (case.out / settings["file"]).read_text(encoding="utf-8").splitlines()]
        for table, settings in summary["tables"].items()
    }
    return rows, summary


def check(spark: SparkSession, folder: Path, columns: list[DrawnColumn]) -> None:
    """Merges `changelog` of these columns. Each must hold what its control holds: the same type and values under
    another name."""
    types = {name: column.type for column in columns for name in (column.name, column.control)}
    declared: dict[str, Any] = {table: {"columns": types} for table in TABLES}
    declared[VERSIONED]["history"] = True
    records = changelog(columns)
    rows, summary = replayed(spark, folder, records, declared, len(records) // 2)
    assert summary["quarantine"] == []
    for table, expected in EXPECTED.items():
        assert sorted((r["id"], r["version"]) for r in rows[table]) == expected, table
        for column in columns:
            differing = [r["id"] for r in rows[table] if r.get(column.name) != r.get(column.control)]
            assert differing == [], (table, column)
            assert all(r.get(column.control) is not None for r in rows[table]), (table, column)


@pytest.mark.long
def test_columns_may_have_names_that_the_code_uses(spark: SparkSession, tmp_path: Path) -> None:
    check(spark, tmp_path, draw_columns(SEED, COLUMN_COUNT // 4, {"id", "version"}))


@pytest.mark.long
def test_every_name_that_the_code_uses_is_free(spark: SparkSession, tmp_path: Path) -> None:
    columns = draw_columns(SEED, len(internal_names()), {"id", "version"})
    for begin in range(0, len(columns), 4 * COLUMN_COUNT):
        check(spark, tmp_path / str(begin), columns[begin : begin + 4 * COLUMN_COUNT])


def test_reserved_names_are_quarantined_and_other_tables_go_on(spark: SparkSession, tmp_path: Path) -> None:
    others = Topic("shop.public.others", ("public", "others"))
    others.change("c", 10, {"id": 1, "v": "a"})
    reserved = Topic("shop.public.reserved", ("public", "reserved"))
    reserved.change("c", 10, {"id": 1, **{name.upper(): "x" for name in RESERVED_NAMES}, "_Ingest_anything": 1})
    rows, summary = replayed(spark, tmp_path, [*others.records, *reserved.records], {}, 0)
    assert rows["public.others"] == [{"id": 1, "v": "a"}]
    assert not rows.get("public.reserved")
    (refused,) = summary["quarantine"]
    assert refused["code"] == "reserved-name"
    assert all(repr(name.upper()) in refused["reason"] for name in RESERVED_NAMES)
    assert "'_Ingest_anything'" in refused["reason"]
    assert "column.exclude.list" in refused["reason"]
