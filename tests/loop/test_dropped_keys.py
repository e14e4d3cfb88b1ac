"""A table whose records lose their key is set aside until its file says what its rows are told apart by."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ingest.backfill.replay import Case, Delivery, replay
from tests.changelogs import Topic, write

pytestmark = pytest.mark.spark
ORDERS = "public.orders"


def changelog(newest_has_key: bool = False) -> Topic:
    """Returns two rows with a key, and then a second row of one id, of which the first one is removed."""
    t = Topic()
    t.change("c", 10, {"id": 1, "v": "a"})
    t.change("c", 11, {"id": 2, "v": "a"})
    t.change("c", 20, {"id": 1, "v": "b"}, key=None)
    t.change("d", 21, before={"id": 1, "v": "a"}, key=None)
    if newest_has_key:
        t.change("u", 30, {"id": 2, "v": "c"}, {"id": 2, "v": "a"})
    return t


def replayed(spark: SparkSession, folder: Path, topic: Topic, size: int, **settings: Any) -> tuple[Any, list[Any]]:
    """Returns the tables that are set aside, and the rows."""
    events = write(folder, topic.records, {"tables": {ORDERS: settings}})
    case = Case("keys", (events / "events.jsonl",), events / "tables.json", folder / "out")
    ((_, summary),) = replay(spark, [case], Delivery(size), "jsonl")
    assert {entry["code"] for entry in summary["quarantine"]} <= {"table-set-aside"}
    lines = (folder / "out" / summary["tables"][ORDERS]["file"]).read_text(encoding="utf-8").splitlines()
    return summary["set_aside"], sorted((row["id"], row["v"]) for row in map(json.loads, lines))


@pytest.mark.parametrize("size", [1, 0])
def test_table_that_loses_its_key_is_set_aside(spark: SparkSession, tmp_path: Path, size: int) -> None:
    found, rows = replayed(spark, tmp_path / "aside", changelog(), size)
    assert found[ORDERS]["code"] == "key-dropped"
    for words in ("(id)", "primary_key: [id]", "primary_key: []", "--rebuild --table public.orders"):
        assert words in found[ORDERS]["reason"], words
    assert rows == ([(1, "a"), (2, "a")] if size else [])


def test_a_key_in_another_case_is_lost_too(spark: SparkSession, tmp_path: Path) -> None:
    topic = Topic()
    topic.change("c", 10, {"ID": 1, "v": "a"}, key={"ID": 1})
    topic.change("c", 20, {"ID": 1, "v": "b"}, key=None)
    declared = {"case_insensitive": True, "tables": {ORDERS: {}}}
    events = write(tmp_path / "in", topic.records, declared)
    case = Case("keys", (events / "events.jsonl",), events / "tables.json", tmp_path / "out")
    ((_, summary),) = replay(spark, [case], Delivery(1), "jsonl")
    assert summary["set_aside"][ORDERS]["code"] == "key-dropped"


@pytest.mark.long
def test_declared_key_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    assert replayed(spark, tmp_path / "key", changelog(), 1, primary_key=["id"]) == ({}, [(2, "a")])
    assert replayed(spark, tmp_path / "none", changelog(), 1, primary_key=[]) == ({}, [(1, "b"), (2, "a")])


def test_records_without_a_key_before_ones_with_a_key_are_no_reason(spark: SparkSession, tmp_path: Path) -> None:
    found, rows = replayed(spark, tmp_path / "newest", changelog(newest_has_key=True), 0)
    assert (found, rows) == ({}, [(2, "c")])


def test_record_that_lacks_the_columns_of_the_key_is_quarantined_alone(spark: SparkSession, tmp_path: Path) -> None:
    t = Topic()
    t.change("c", 10, {"id": 1, "v": "a"})
    t.change("c", 20, {"v": "b"}, key=None)
    events = write(tmp_path / "in", t.records, None)
    ((_, summary),) = replay(
        spark, [Case("bad", (events / "events.jsonl",), None, tmp_path / "out")], Delivery(), "jsonl"
    )
    assert (summary["set_aside"], [one["code"] for one in summary["quarantine"]]) == ({}, ["no-key"])
