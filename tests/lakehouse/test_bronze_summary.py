"""The positions of the logs in bronze are computed once, stored, and updated incrementally."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from ingest.errors import Contended
from ingest.lakehouse.bronze import Bronze
from ingest.lakehouse.bronze.summary import BronzeSummary, highest_position, offsets_of
from ingest.lakehouse.history_facts import HistoryFact, HistoryFacts
from ingest.loop.capture import Capture
from ingest.pipeline.composition import rules_of
from ingest.sources.files import FileSource, lines
from ingest.tuning import DEFAULT_TUNING
from tests.changelogs import write
from tests.shop import events, pipeline

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def bronze(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Bronze:
    """A bronze of which a summary is stored after 15 events."""
    root = tmp_path_factory.mktemp("summary")
    shop = pipeline(root)
    found = Bronze(spark, shop.layout.bronze(shop.name), tuning=replace(DEFAULT_TUNING, events_per_stored_summary=15))
    source = FileSource(list(lines([write(root / "said", events(), None) / "events.jsonl"])))
    capture = Capture(spark, source, found, rules_of(shop).naming, 10)
    while capture.step():
        pass
    return found


def read_spans(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Records the batches that are read from any bronze."""
    read: list[tuple[int, int]] = []
    between = Bronze.between

    def reading(of: Bronze, after: int, through_batch: int) -> DataFrame:
        read.append((after, through_batch))
        return between(of, after, through_batch)

    monkeypatch.setattr(Bronze, "between", reading)
    return read


def test_summary_equals_the_events(bronze: Bronze) -> None:
    last = bronze.last_batch()
    ends = BronzeSummary(bronze, "p").log_ends(last)
    rows = bronze.rows().where("op in ('c', 'u', 'd', 'r')")
    highest = {r[0]: tuple(r[1]) for r in rows.groupBy("source_table").agg({"position": "max"}).collect()}
    assert {table: highest_position(ends, table) for table in highest} == highest
    assert highest_position(ends, "no.table") == ()
    assert offsets_of(ends) == bronze.captured().offsets


def test_each_batch_is_summarised_once(
    spark: SparkSession, bronze: Bronze, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history, read = HistoryFacts(spark, str(tmp_path / "known")), read_spans(monkeypatch)
    first = BronzeSummary(bronze, "p", history)
    first.log_ends(1)
    kept = first.log_ends(3)
    first.record_merged(4, 9)
    assert read == [(0, 1), (1, 3)], "nine more are not enough"
    first.record_merged(5, 6)
    assert read[2:] == [(3, 5)]
    five = first.log_ends(5)
    del read[:]
    again = BronzeSummary(bronze, "p", HistoryFacts(spark, str(tmp_path / "known")))
    assert sorted(map(repr, again.log_ends(5))) == sorted(map(repr, five))
    assert read == []
    again.log_ends(6)
    assert read == [(5, 6)]
    # An earlier batch has an earlier summary.
    assert sorted(map(repr, again.log_ends(3))) == sorted(map(repr, kept))
    other = BronzeSummary(bronze, "other", history)
    del read[:]
    other.log_ends(6)
    assert read == [(0, 6)], "another reader computes its own"


def test_replaced_bronze_is_summarised_again(
    spark: SparkSession, bronze: Bronze, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = HistoryFacts(spark, str(tmp_path / "known"))
    BronzeSummary(bronze, "p", history).log_ends(5)
    monkeypatch.setattr(Bronze, "identity", "another table")
    read = read_spans(monkeypatch)
    BronzeSummary(bronze, "p", history).log_ends(5)
    assert read == [(0, 5)]


def test_stored_fact_replaces_the_older_one(spark: SparkSession, tmp_path: Path) -> None:
    one, other = (HistoryFacts(spark, str(tmp_path / "known")) for _ in range(2))
    assert one.load("p", "kind", "basis") is None
    for through_batch in (3, 7):
        one.store("p", "kind", "basis", HistoryFact(through_batch, {"spans": [[0, through_batch]]}))
        other.store("q", "kind", "basis", HistoryFact(through_batch + 1, {}))
    assert other.load("p", "kind", "basis") == HistoryFact(7, {"spans": [[0, 7]]})
    assert one.load("q", "kind", "basis") == HistoryFact(8, {})
    assert one.load("p", "kind", "other settings") is None
    assert one.load("p", "other", "basis") is None
    assert one._table.rows().count() == 2


def test_stale_fact_does_not_replace_a_newer_one(spark: SparkSession, tmp_path: Path) -> None:
    one, other = (HistoryFacts(spark, str(tmp_path / "known")) for _ in range(2))
    one.store("p", "kind", "basis", HistoryFact(1, {}))
    assert other.load("p", "kind", "basis") == HistoryFact(1, {})
    one.store("p", "kind", "basis", HistoryFact(2, {}))
    with pytest.raises(Contended):
        other.store("p", "kind", "basis", HistoryFact(3, {}))
    assert one.load("p", "kind", "basis") == HistoryFact(2, {})
