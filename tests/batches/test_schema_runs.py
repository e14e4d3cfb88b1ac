"""Runs of events with one schema: from the statistics of a slice's groups, or from the events' positions."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from ingest.batches import schema_runs as module
from ingest.batches.group_stats import Group
from ingest.batches.schema_runs import SchemaRun, runs_of_groups, schema_runs
from ingest.changelog.position import POSITION
from ingest.errors import TableUnusable
from ingest.evolution.definition import Place
from tests.evolution.versions import at

UNPLACED: Place = (0, 0, 0, 0, 2, 9, 0)


def group(schema_id: int | None, first: Place, last: Place) -> Group:
    return Group("s.t", "change", None, schema_id, True, 2, ("t", 0, first[1]), None, first, last, (("t", 0),))


def test_groups_in_order_are_runs() -> None:
    found = runs_of_groups([group(2, at(30), at(40)), group(1, at(10), at(20)), group(None, at(50), at(60))])
    assert found == [SchemaRun(1, at(10), at(20), ("t", 0, 10)), SchemaRun(2, at(30), at(40), ("t", 0, 30))]


@pytest.mark.parametrize(
    "groups",
    [
        [group(1, at(10), at(30)), group(2, at(20), at(20))],
        [group(1, at(10), at(20)), group(2, at(20), at(40))],
        [group(1, UNPLACED, at(20)), group(2, at(30), at(40))],
    ],
    ids=["one within another", "one position", "a read without a position"],
)
def test_groups_that_may_alternate_tell_no_runs(groups: list[Group]) -> None:
    assert runs_of_groups(groups) is None


@pytest.mark.spark
def test_runs_are_in_the_order_of_positions(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    places = [(1, at(10)), (2, at(30)), (1, at(20)), (1, at(40)), (None, at(25)), (2, UNPLACED), (1, at(50))]
    rows = [("t", 0, number, schema_id, place) for number, (schema_id, place) in enumerate(places)]
    fields: list[tuple[str, T.DataType]] = [
        ("topic", T.StringType()),
        ("partition", T.IntegerType()),
        ("offset", T.LongType()),
    ]
    fields += [("schema_id", T.LongType()), ("position", POSITION)]
    events = spark.createDataFrame(rows, T.StructType([T.StructField(*field) for field in fields]))
    expected = [
        SchemaRun(1, at(10), at(20), ("t", 0, 0)),
        SchemaRun(2, at(30), at(30), ("t", 0, 1)),
        SchemaRun(1, at(40), at(50), ("t", 0, 3)),
    ]
    assert schema_runs(events, "s.t") == expected
    assert schema_runs(events, "s.t", at(30), at(40)) == expected[1:2]
    monkeypatch.setattr(module, "_MOST_RUNS", 2)
    with pytest.raises(TableUnusable, match=r"s\.t"):
        schema_runs(events, "s.t")
