"""A null tombstone right after its delete is recognised while a small slice is counted, without a lookup, and the
accounts stay the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from ingest.batches import placement
from ingest.batches.rules import Rules
from ingest.changelog.accounting import Account
from ingest.lakehouse.bronze import Bronze
from ingest.loop import slices
from ingest.loop.capture import Capture
from ingest.loop.merge import Merge
from ingest.names import Lakehouse
from ingest.sources.files import FileSource, lines
from ingest.tuning import DEFAULT_TUNING, Tuning
from tests.changelogs import Record, Topic, write

pytestmark = pytest.mark.spark
RULES = Rules(stops_at_restart=False, exclude_tables="public.left_out")
LARGE_SLICES = replace(DEFAULT_TUNING, small_slice_events=0)


def deleted(topic: Topic, lsn: int, *ids: int) -> None:
    """Appends creates and deletes of these rows, each delete followed by its null tombstone."""
    for n in ids:
        topic.change("c", lsn + n, {"id": n, "v": "a"})
        topic.change("d", lsn + 10 + n, before={"id": n, "v": "a"})
        topic.tombstone({"id": n})


def both_tables() -> tuple[Topic, Topic]:
    taken, left = Topic(), Topic("shop.public.left_out", ("public", "left_out"))
    deleted(taken, 10, 1, 2, 3)
    deleted(left, 10, 1, 2)
    taken.change("c", 90, {"id": 4, "v": "b"})
    return taken, left


def merged(
    spark: SparkSession,
    folder: Path,
    records: list[Record],
    is_counted: bool,
    limit: int = 100,
    tuning: Tuning = DEFAULT_TUNING,
) -> tuple[list[Account], list[Any], int]:
    """Returns the accounts, the rows of silver, and the number of tombstones. `limit`: records per batch."""
    rules = replace(RULES, tuning=tuning)
    file = write(folder / "events", records, None) / "events.jsonl"
    lakehouse = Lakehouse(str(folder / "lake"))
    bronze = Bronze(spark, lakehouse.bronze("shop"), tuning=tuning)
    source = FileSource(list(lines([file])))
    capture = Capture(spark, source, bronze, rules.naming, limit, merges=is_counted)
    merge = Merge(spark, "shop", lakehouse, rules, bronze, 1)
    accounts: list[Account] = []
    while capture.step():
        accounts += merge.step(capture.captured.batch)
    stored = merge.tables.table_state("public.orders")
    rows = sorted(stored.silver.rows().select("id", "v").collect())
    tombstones = stored.tombstones.rows().count()
    return accounts, rows, tombstones


@pytest.mark.parametrize(
    "is_counted", [True, pytest.param(False, marks=pytest.mark.long)], ids=["counted while captured", "from files"]
)
def test_tombstone_after_its_delete_needs_no_search(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_counted: bool
) -> None:
    records = [r for topic in both_tables() for r in topic.records]
    looked_for = merged(spark, tmp_path / "looked for", records, is_counted=False, tuning=LARGE_SLICES)
    monkeypatch.setattr(slices, "place_tombstones", None)
    assert merged(spark, tmp_path / "known", records, is_counted) == looked_for
    assert looked_for[1] == [(4, "b")]
    assert [(a.table, a.read, a.suppressed) for a in looked_for[0]] == [
        ("public.left_out", 6, 6),
        ("public.orders", 10, 0),
    ]


def another_change_between(topic: Topic) -> None:
    topic.change("c", 60, {"id": 5, "v": "c"})
    topic.change("d", 61, before={"id": 5, "v": "c"})
    topic.change("c", 62, {"id": 6, "v": "d"})
    topic.tombstone({"id": 5})


def of_another_key(topic: Topic) -> None:
    topic.change("c", 60, {"id": 5, "v": "c"})
    topic.change("d", 61, before={"id": 6, "v": "c"})
    topic.tombstone({"id": 5})


def after_a_gap(topic: Topic) -> None:
    topic.change("d", 61, before={"id": 6, "v": "c"})
    topic.next_offset += 1
    topic.tombstone({"id": 6})


def behind_an_update(topic: Topic) -> None:
    topic.change("u", 60, {"id": 5, "v": "c"})
    topic.tombstone({"id": 5})


def alone(topic: Topic) -> None:
    topic.tombstone({"id": 7})


@pytest.mark.parametrize(
    "story",
    [
        alone,
        *(
            pytest.param(story, marks=pytest.mark.long)
            for story in (another_change_between, of_another_key, after_a_gap, behind_an_update)
        ),
    ],
)
def test_repeated_tombstone_is_searched(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, story: Any
) -> None:
    taken, left = both_tables()
    story(taken)
    records = [*taken.records, *left.records]
    expected = merged(spark, tmp_path / "looked for", records, is_counted=False, tuning=LARGE_SLICES)
    searches = list[int]()

    def looking(*arguments: Any) -> placement.PlacedTombstones:
        searches.append(1)
        return placement.place_tombstones(*arguments)

    monkeypatch.setattr(slices, "place_tombstones", looking)
    assert merged(spark, tmp_path / "counted", records, is_counted=True) == expected
    assert searches


@pytest.mark.long
@pytest.mark.parametrize("others", [0, 1], ids=["right before it", "further back"])
def test_whole_bronze_is_read_only_if_its_end_is_not_enough(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    """A batch may begin with a tombstone whose delete ends the preceding batch, when bronze is large already."""
    topic = Topic()
    topic.change("c", 10, {"id": 1, "v": "a"})
    topic.change("d", 20, before={"id": 1, "v": "a"})
    for n in range(others):
        topic.change("c", 30, {"id": 2 + n, "v": "b"})
    topic.tombstone({"id": 1})
    read = list[tuple[int, int]]()
    whole = Bronze.all_between

    def reading(bronze: Bronze, after: int, through_batch: int) -> DataFrame:
        read.append((after, through_batch))
        return whole(bronze, after, through_batch)

    monkeypatch.setattr(Bronze, "all_between", reading)
    accounts, rows, tombstones = merged(spark, tmp_path, topic.records, is_counted=False, limit=1)
    assert sum(a.read for a in accounts) == 3 + others
    assert (len(rows), tombstones) == (others, 1)
    before = 2 + others
    assert read == [(before, before + 1), (before - 1, before), *[(0, before)] * others]
