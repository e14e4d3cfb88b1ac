"""Rows of a table without a key from before a column whose value there no event shows: later updates and deletes find
them by the other columns."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ingest.config import Pipeline
from ingest.evolution.lives import lives
from ingest.lakehouse.silver import Silver
from ingest.merge.keyless import eras
from tests.changelogs import Topic, schema
from tests.evolution.versions import at, seen
from tests.shop import captured, merged, pipeline

SEED = int(os.environ.get("FUZZ_SEED", "7"))
OLD, NEW = schema(("n", "int32"), ("a", "string")), schema(("n", "int32"), ("b", "string"))
NUMBERS = {"field": "s", "type": "array", "items": {"type": "int32", "optional": True}, "optional": True}
Row = tuple[int | None, Any]


def test_eras_know_the_columns_that_were_there() -> None:
    now = lives([seen(10, "n", "a", "x"), seen(20, "n", "b", "x"), seen(30, "n", "b", "y")])
    assert now.untold_below == {"b": at(20), "y": at(30)}
    newest, oldest = eras(("n", "a", "x", "b", "y"), now.untold_below)
    assert (newest.known, newest.begin, newest.end) == (("n", "a", "x", "b"), at(20), at(30))
    assert (oldest.known, oldest.begin, oldest.end) == (("n", "a", "x"), None, at(20))
    assert lives([seen(10, "n"), seen(20, "n", "b")]).untold_below == {}, "null is known of an integer"


def found(spark: SparkSession, shop: Pipeline, column: str) -> Counter[Row]:
    rows = Silver(spark, shop.layout.silver(shop.name, "public.orders")).rows().select("n", column).collect()
    return Counter((row["n"], None if row[column] is None else str(row[column])) for row in rows)


@pytest.mark.spark
@pytest.mark.parametrize("batch", [pytest.param(1, marks=pytest.mark.long), 12], ids=["event by event", "one batch"])
def test_renamed_column_leaves_no_row_behind_and_takes_no_new_one_away(
    spark: SparkSession, tmp_path: Path, batch: int
) -> None:
    shop, topic = pipeline(tmp_path, batch={"max_events": batch}), Topic("shop.orders", key=())
    for lsn, row in ((10, {"n": 1, "a": "x"}), (11, {"n": 2, "a": "y"}), (12, {"n": 3, "a": "z"})):
        topic.change("c", lsn, row, schema=OLD)
    # At the source: RENAME a TO b.
    topic.change("d", 20, before={"n": 1, "b": "x"}, schema=NEW)
    topic.change("c", 30, {"n": 1, "b": "x"}, schema=NEW)
    topic.change("u", 40, {"n": 2, "b": "new"}, {"n": 2, "b": "y"}, schema=NEW)
    topic.change("d", 50, before={"n": 2, "b": "new"}, schema=NEW)
    merged(spark, shop, captured(spark, shop, tmp_path, topic.records, batch))
    assert found(spark, shop, "b") == Counter({(1, "x"): 1, (3, None): 1})


@pytest.mark.spark
def test_row_is_found_though_no_schema_shows_its_default(spark: SparkSession, tmp_path: Path) -> None:
    """At the source: ADD s int[] DEFAULT '{1}'."""
    shop, topic = pipeline(tmp_path), Topic("shop.orders", key=())
    before, after = schema(("n", "int32")), schema(("n", "int32"), NUMBERS)
    for lsn in (10, 11):
        topic.change("c", lsn, {"n": lsn}, schema=before)
    topic.change("c", 20, {"n": 10, "s": None}, schema=after)
    topic.change("d", 30, before={"n": 10, "s": [1]}, schema=after)
    topic.change("d", 31, before={"n": 10, "s": None}, schema=after)
    topic.change("u", 32, {"n": 11, "s": [2]}, {"n": 11, "s": [1]}, schema=after)
    merged(spark, shop, captured(spark, shop, tmp_path, topic.records, 3))
    assert found(spark, shop, "s") == Counter({(11, "[2]"): 1})


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("batch", [7, 100])
def test_random_rows_are_as_many_as_at_the_source(spark: SparkSession, tmp_path: Path, batch: int) -> None:
    """In any batches: an image finds an equal row, else the oldest from before the new name that equals it in `n`."""
    random = Random(SEED)
    shop, topic = pipeline(tmp_path, batch={"max_events": batch}), Topic("shop.orders", key=())
    source: list[Row] = []
    expected: list[Row] = []
    for number in range(36):
        is_new = number >= 20
        if number == 20:
            expected = [(n, None) for n, _ in expected]
        row = (random.randrange(3), random.choice("xyz"))
        op = random.choice("ccud") if source else "c"
        images: dict[str, Any] = {}
        envelope, name = (NEW, "b") if is_new else (OLD, "a")
        if op in "ud":
            before = random.choice(source)
            source.remove(before)
            expected.remove(before if before in expected else (before[0], None))
            images["before"] = {"n": before[0], name: before[1]}
        if op in "cu":
            source.append(row)
            expected.append(row)
            images["after"] = {"n": row[0], name: row[1]}
        topic.change(op, 10 * (number + 1), **images, schema=envelope)
    merged(spark, shop, captured(spark, shop, tmp_path, topic.records, batch))
    assert found(spark, shop, "b") == Counter(expected), SEED
    assert Counter(n for n, _ in source) == Counter(n for n, _ in expected)
