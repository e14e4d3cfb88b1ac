"""Events since a table was asked for tell if rows that have none are gone."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from ingest.backfill.whole_read import read_summary
from ingest.changelog.envelope import EVENT

pytestmark = pytest.mark.spark
SCHEMA = T.StructType([EVENT[name] for name in ("topic", "partition", "offset", "key", "op", "position")])


def summary(spark: SparkSession, *events: tuple[str, str | None]) -> dict[str, Any]:
    """Returns the summary of events (op, key) in the order in which they came."""
    rows = [
        ("shop.orders", 0, i, key and key.encode(), op, (0, 100 + i, 0, 0, int(op != "r"), i, 0))
        for i, (op, key) in enumerate(events)
    ]
    found = read_summary(spark.createDataFrame(rows, SCHEMA)).first()
    assert found is not None
    return found.asDict()


def test_rows_are_counted_once(spark: SparkSession) -> None:
    found = summary(spark, ("u", "1"), ("u", "1"), ("r", "2"), ("r", None), ("r", None), ("tombstone", "3"))
    assert (found["rows"], found["has_old_reads"]) == (4, False)
    assert (found["lowest"]["major"], found["highest"]["major"]) == (100, 104)


def test_no_events_are_no_rows(spark: SparkSession) -> None:
    assert summary(spark) == {"rows": 0, "lowest": None, "highest": None, "has_old_reads": False}


@pytest.mark.parametrize(
    ("events", "is_old"),
    [
        ([("d", "1"), ("r", "1")], True),
        ([("d", "1"), ("tombstone", "1"), ("r", "2"), ("r", "1")], True),
        ([("tombstone", "1"), ("r", "1")], True),
        ([("c", "1"), ("d", "1"), ("r", "1")], True),
        ([("r", "1"), ("d", "1"), ("tombstone", "1")], False),
        ([("d", "1"), ("c", "1"), ("r", "1")], False),
        ([("d", "1"), ("r", "1"), ("c", "1")], False),
        ([("d", "1"), ("r", "2")], False),
        ([("r", "1"), ("t", None)], True),
    ],
)
def test_read_after_its_delete_is_old(spark: SparkSession, events: list[tuple[str, str | None]], is_old: bool) -> None:
    assert summary(spark, *events)["has_old_reads"] is is_old
