"""Several events at a row's position: duplicates, different events at one position, and duplicates within a batch."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ingest.batches.rules import Rules
from ingest.changelog.accounting import Account
from ingest.lakehouse.bronze import Bronze
from ingest.lakehouse.silver import Silver
from ingest.lakehouse.tombstones import Tombstones
from ingest.loop.capture import Capture
from ingest.loop.merge import Merge
from ingest.names import Lakehouse
from ingest.sources.files import FileSource, lines
from tests.changelogs import Topic, write

pytestmark = pytest.mark.spark
ORDERS = "public.orders"


@pytest.mark.parametrize("other", [False, True], ids=["the same", "another"])
def test_event_at_its_rows_position_counts_if_it_differs(spark: SparkSession, tmp_path: Path, other: bool) -> None:
    t = Topic()
    for i in (1, 2, 3, 4, 7):
        t.change("c", 10 + i, {"id": i, "v": "a"})
    second = {"id": 2, "v": "b" if other else "a"}
    for fresh in (5, 6):
        t.change("c", 11, {"id": 1, "v": "a"})
        t.change("c", 12, second)
        t.change("d", 20, before={"id": 3, "v": "a"})
        t.change("d", 21, before={"id": 9, "v": "a"})
        t.change("u" if fresh == 6 else "c", 30 + fresh, {"id": 5, "v": str(fresh)})
    silver, tombstones, accounts = merged(spark, tmp_path, t)
    assert sorted(silver.rows().select("id", "v").collect()) == [
        (1, "a"),
        (2, second["v"]),
        (4, "a"),
        (5, "6"),
        (7, "a"),
    ]
    assert tombstones.count() == 2
    counts = [(a.read, a.applied, a.superseded) for a in accounts]
    assert counts == [(5, 5, 0), (5, 3 + other, 2 - other), (5, 1, 4)]
    assert [counts.user_metadata["account"]["applied"] for counts in silver.commits()] == [1, 3 + other, 5], (
        "a commit each"
    )


def test_events_of_a_table_without_a_key_in_two_partitions_are_told_of(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    t = Topic(key=())
    for lsn in (10, 20, 30):
        t.change("c", lsn, {"id": lsn, "v": "a"}, key=None)
    t.records[1] |= {"partition": 1, "offset": 0}
    t.records[2] |= {"offset": 1}
    silver, _, _ = merged(spark, tmp_path, t)
    assert silver.rows().count() == 3
    assert [r.getMessage()[:13] for r in caplog.records if "several partitions" in r.getMessage()] == [ORDERS]


def test_last_of_repeated_image_fields_counts(spark: SparkSession, tmp_path: Path) -> None:
    t = Topic()
    t.change("c", 10, {"id": 1, "v": "a"})
    first, last = (f'"after": {{"id": 1, "v": "{said}"}}' for said in ("first", "last"))
    source = '"source": {"connector": "postgresql", "schema": "public", "table": "orders", "lsn": 11}'
    t.record({"id": 1}, None, value_bytes=f'{{"before": null, {first}, {source}, "op": "u", {last}}}')
    silver, _, _ = merged(spark, tmp_path, t)
    assert silver.rows().select("id", "v").collect() == [(1, "last")]


def merged(spark: SparkSession, root: Path, topic: Topic) -> tuple[Silver, Tombstones, list[Account]]:
    """Merges five events per batch and returns the account of each slice."""
    folder = write(root / "events", topic.records, None)
    lakehouse = Lakehouse(str(root / "lake"))
    bronze = Bronze(spark, lakehouse.bronze("shop"))
    rules = Rules(stops_at_restart=False)
    capture = Capture(spark, FileSource(list(lines([folder / "events.jsonl"]))), bronze, rules.naming, 5)
    merge = Merge(spark, "shop", lakehouse, rules, bronze, 1)
    accounts: list[Account] = []
    while capture.step():
        accounts += merge.step()
    stored = merge.tables.table_state(ORDERS)
    return stored.silver, stored.tombstones, accounts
