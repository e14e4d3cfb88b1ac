"""Bronze knows how far it has captured, and the statistics of what it has captured."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.batches.group_stats import groups_by_slice
from ingest.changelog.envelope import BATCH
from ingest.delta import delta_table
from ingest.lakehouse.bronze import Bronze, CaptureState
from ingest.lakehouse.bronze.batches import BatchStats
from ingest.loop.capture import Capture
from ingest.pipeline.composition import rules_of
from ingest.sources.files import FileSource, lines
from ingest.tuning import DEFAULT_TUNING
from tests.changelogs import write
from tests.shop import events, pipeline

pytestmark = pytest.mark.spark
EPOCHS = (datetime(2020, 1, 1, tzinfo=UTC),)
"""The time from which all positions have another epoch."""


def read(events: DataFrame) -> BatchStats:
    """Returns the statistics of the events, computed by reading them."""
    return [group.to_json() for group in groups_by_slice(events, F.lit(0), is_small=True)[0]]


@pytest.mark.parametrize("events_of_a_small_batch", [9, 10])
def test_statistics_of_a_captured_batch_equal_those_of_its_events(
    spark: SparkSession, tmp_path: Path, events_of_a_small_batch: int
) -> None:
    shop, tuning = pipeline(tmp_path), replace(DEFAULT_TUNING, small_slice_events=events_of_a_small_batch)
    bronze = Bronze(spark, shop.layout.bronze(shop.name), EPOCHS, tuning=tuning)
    source = FileSource(list(lines([write(tmp_path / "said", events(), None) / "events.jsonl"])))
    capture = Capture(spark, source, bronze, rules_of(shop).naming, 10, merges=True)
    for batch in (1, 2):
        assert capture.step()
        assert bronze.batch_stats()[batch - 1] == (batch, read(bronze.between(batch - 1, batch)))


def test_start_reads_one_commit_and_no_events(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the newest batch is empty, or if files were compacted or rewritten since."""
    path = str(tmp_path / "bronze")
    bronze = Bronze(spark, path)
    shop = pipeline(tmp_path)
    source = FileSource(list(lines([write(tmp_path / "said", events(), None) / "events.jsonl"])))
    capture = Capture(spark, source, bronze, rules_of(shop).naming, 10)
    while capture.step():
        pass
    at = capture.captured
    assert at.batch > 1
    bronze.empty(bronze.rows().limit(1).withColumn("request", F.lit("r1")))
    with monkeypatch.context() as without_rows:
        without_rows.setattr(Bronze, "rows", None)
        again = Bronze(spark, path)
        assert again.captured() == at
        assert again.last_batch() == at.batch
        assert Capture(spark, source, again, rules_of(shop).naming, 10).captured == at
    empty = bronze.rows().drop(BATCH).limit(0)
    ends = {t: {p: end + 7 for p, end in ps.items()} for t, ps in at.offsets.items()}
    bronze.append(empty, CaptureState(at.batch + 1, ends, at.topic_ids))
    assert Bronze(spark, path).captured() == CaptureState(at.batch + 1, ends, at.topic_ids)


def test_missing_capture_state_is_computed_from_rows_and_stored(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "bronze")
    shop = pipeline(tmp_path)
    source = FileSource(list(lines([write(tmp_path / "said", events(), None) / "events.jsonl"])))
    capture = Capture(spark, source, Bronze(spark, path), rules_of(shop).naming, 10)
    while capture.step():
        pass
    with monkeypatch.context() as expired:
        expired.setattr("ingest.delta.commit_log.commits", lambda *_: iter(()))
        assert Bronze(spark, path).captured() == capture.captured
        version = delta_table.Table(spark, path).version()
        assert Bronze(spark, path).resume() == capture.captured
    assert delta_table.Table(spark, path).version() == version + 1
    monkeypatch.setattr(Bronze, "rows", None)
    assert Bronze(spark, path).resume() == capture.captured
    assert delta_table.Table(spark, path).version() == version + 1


def test_erasure_invalidates_stored_statistics(spark: SparkSession, tmp_path: Path) -> None:
    shop = pipeline(tmp_path)
    path = shop.layout.bronze(shop.name)
    bronze, other = Bronze(spark, path), Bronze(spark, path)
    source = FileSource(list(lines([write(tmp_path / "said", events(), None) / "events.jsonl"])))
    capture = Capture(spark, source, bronze, rules_of(shop).naming, 10, merges=True)
    assert capture.step()
    assert list(bronze.batch_stats()) == [0]

    def erase() -> None:
        other.empty(other.rows().limit(1).withColumn("request", F.lit("r1")))

    erase()
    assert capture.step()
    assert list(bronze.batch_stats()) == [1], "before the second batch"
    erase()
    assert not bronze.batch_stats(), "after the second batch"
    log = spark.sql(f"DESCRIBE HISTORY delta.`{path}`").orderBy("version").collect()
    assert [row["operation"] for row in log] == ["WRITE", "DELETE", "WRITE", "DELETE"]
