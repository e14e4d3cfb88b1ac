"""A table whose records lose their key goes on as a bag of rows; late events of the key land right."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ingest.backfill.replay import Case, Delivery, replay
from tests.changelogs import Record, Topic, write

pytestmark = pytest.mark.spark
ORDERS = "public.orders"
Rows = list[tuple[int, str]]


def row(number: int, v: str) -> dict[str, Any]:
    return {"id": number, "v": v}


def changelog(newest_has_key: bool = False) -> Topic:
    """Returns two rows with a key, and then a second row of one id, of which the first one is removed."""
    t = Topic()
    t.change("c", 10, row(1, "a"))
    t.change("c", 11, row(2, "a"))
    t.change("c", 20, row(1, "b"), key=None)
    t.change("d", 21, before=row(1, "a"), key=None)
    if newest_has_key:
        t.change("u", 30, row(2, "c"), row(2, "a"))
    return t


def replayed(
    spark: SparkSession, folder: Path, records: Sequence[Record], size: int, **settings: Any
) -> tuple[Any, list[Any]]:
    """Returns the tables that are set aside, and the rows."""
    events = write(folder, [*records], {"tables": {ORDERS: settings}})
    case = Case("keys", (events / "events.jsonl",), events / "tables.json", folder / "out")
    ((_, summary),) = replay(spark, [case], Delivery(size), "jsonl")
    assert {entry["code"] for entry in summary["quarantine"]} <= {"table-set-aside"}
    lines = (folder / "out" / summary["tables"][ORDERS]["file"]).read_text(encoding="utf-8").splitlines()
    return summary["set_aside"], sorted((row["id"], row["v"]) for row in map(json.loads, lines))


@pytest.mark.parametrize("size", [pytest.param(1, marks=pytest.mark.long), 0])
def test_table_that_loses_its_key_goes_on_as_a_bag_of_rows(spark: SparkSession, tmp_path: Path, size: int) -> None:
    t = changelog()
    t.change("c", 30, row(2, "a"), key=None)
    t.change("c", 31, row(2, "a"), key=None)
    t.change("u", 32, row(2, "c"), row(2, "a"), key=None)
    found = replayed(spark, tmp_path / "bag", t.records, size)
    assert found == ({}, [(1, "b"), (2, "a"), (2, "a"), (2, "c")])


LATE: dict[str, tuple[Any, Rows]] = {
    "an update of a row that is there": (("u", 15, row(2, "z")), [(1, "b"), (2, "z")]),
    "an update of a row that was removed since": (("u", 15, row(1, "a")), [(1, "b"), (2, "a")]),
    "a row that was never seen": (("c", 12, row(3, "x")), [(1, "b"), (2, "a"), (3, "x")]),
    "a delete": (("d", 15, None, row(2, "a")), [(1, "b")]),
    "an older update": (("u", 5, row(2, "old")), [(1, "b"), (2, "a")]),
}


@pytest.mark.long
@pytest.mark.parametrize("late", LATE)
def test_late_event_with_the_key_changes_the_row_that_it_was_about(
    spark: SparkSession, tmp_path: Path, late: str
) -> None:
    (op, lsn, *images), rows = LATE[late]
    t = changelog()
    t.change(op, lsn, *images)
    assert replayed(spark, tmp_path / "late", t.records, 2) == ({}, rows)


@pytest.mark.long
def test_removal_of_a_row_waits_for_the_event_that_made_it(spark: SparkSession, tmp_path: Path) -> None:
    """The removal first takes another row for its own, as long as a late event is missing."""
    t = Topic()
    t.change("c", 10, row(1, "a"))
    t.change("c", 11, row(2, "b"))
    t.change("d", 30, before=row(1, "a"), key=None)
    t.change("c", 31, row(1, "a"), key=None)
    t.change("u", 20, row(1, "z"))
    t.change("u", 21, row(1, "a"))
    t.change("d", 22, before=row(1, "a"))
    t.change("c", 23, row(1, "a"))
    assert replayed(spark, tmp_path / "waits", t.records, 1) == ({}, [(1, "a"), (2, "b")])


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 8))
def test_order_of_arrival_does_not_matter(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    t = changelog()
    t.change("c", 12, row(3, "x"))
    t.change("u", 13, row(3, "y"))
    t.change("u", 14, row(1, "a"))
    t.change("d", 40, before=row(3, "y"), key=None)
    t.change("c", 41, row(3, "y"), key=None)
    records = Random(seed).sample(t.records, len(t.records))
    records = [record | {"offset": offset} for offset, record in enumerate(records)]
    assert replayed(spark, tmp_path / "order", records, 1) == ({}, [(1, "b"), (2, "a"), (3, "y")])


def test_a_key_in_another_case_is_lost_too(spark: SparkSession, tmp_path: Path) -> None:
    topic = Topic()
    topic.change("c", 10, {"ID": 1, "v": "a"}, key={"ID": 1})
    topic.change("c", 20, {"ID": 1, "v": "b"}, key=None)
    declared = {"case_insensitive": True, "tables": {ORDERS: {}}}
    events = write(tmp_path / "in", topic.records, declared)
    case = Case("keys", (events / "events.jsonl",), events / "tables.json", tmp_path / "out")
    ((_, summary),) = replay(spark, [case], Delivery(1), "jsonl")
    assert (summary["set_aside"], summary["tables"][ORDERS]["rows"]) == ({}, 2)


@pytest.mark.long
def test_declared_key_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    records = changelog().records
    assert replayed(spark, tmp_path / "key", records, 1, primary_key=["id"]) == ({}, [(2, "a")])
    assert replayed(spark, tmp_path / "none", records, 1, primary_key=[]) == ({}, [(1, "b"), (2, "a")])


@pytest.mark.parametrize("size", [pytest.param(1, marks=pytest.mark.long), 0])
def test_table_that_has_its_key_again_goes_on_by_it(spark: SparkSession, tmp_path: Path, size: int) -> None:
    t = changelog(newest_has_key=True)
    t.change("u", 31, row(1, "d"))
    t.change("u", 15, row(1, "late"))
    assert replayed(spark, tmp_path / "again", t.records, size) == ({}, [(1, "d"), (2, "c")])


def test_record_that_lacks_the_columns_of_the_key_is_quarantined_alone(spark: SparkSession, tmp_path: Path) -> None:
    t = Topic()
    t.change("c", 10, row(1, "a"))
    t.change("c", 20, {"v": "b"}, key=None)
    events = write(tmp_path / "in", t.records, None)
    ((_, summary),) = replay(
        spark, [Case("bad", (events / "events.jsonl",), None, tmp_path / "out")], Delivery(), "jsonl"
    )
    assert (summary["set_aside"], [one["code"] for one in summary["quarantine"]]) == ({}, ["no-key"])
