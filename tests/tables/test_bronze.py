"""A small batch is at hand for who merges it: the same events as the files hold, and the same told of them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.run.capture import Capture
from ingest.run.pipeline import rules_of
from ingest.run.profile import profiles
from ingest.sources.files import FileSource, lines
from ingest.tables.bronze import Bronze
from tests.history.shop import events, pipeline
from tests.replay.changelogs import write

pytestmark = pytest.mark.spark
EPOCHS = (datetime(2020, 1, 1, tzinfo=UTC),)
"""Since when all positions are others than the source gave."""


def as_sets(rows: DataFrame) -> list[str]:
    return sorted(map(repr, rows.collect()))


def test_what_was_captured_last_is_read_from_no_file(spark: SparkSession, tmp_path: Path) -> None:
    shop = pipeline(tmp_path)
    path = shop.layout.bronze(shop.name)
    bronze = Bronze(spark, path, EPOCHS)
    source = FileSource(list(lines([write(tmp_path / "said", events(), None) / "events.jsonl"])))
    capture = Capture(spark, source, bronze, rules_of(shop).naming, 10, merges=True)
    for batch in (1, 2):
        assert capture.step()
        stored = Bronze(spark, path, EPOCHS).between(batch - 1, batch)
        held = bronze.between(batch - 1, batch)
        assert stored.inputFiles()
        assert not held.inputFiles()
        assert held.schema.simpleString() == stored.schema.simpleString()
        assert as_sets(held) == as_sets(stored)
        told = [group.said for group in profiles(stored, F.lit(0), few=True)[0]]
        assert bronze.counted[batch - 1] == (batch, told)
    assert bronze.between(0, 1).inputFiles(), "one batch is at hand"
    assert as_sets(bronze.between(0, 2)) == as_sets(Bronze(spark, path, EPOCHS).between(0, 2))


def test_many_events_are_read_from_files_alone(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingest.run.capture.FEW", 9)
    shop = pipeline(tmp_path)
    bronze = Bronze(spark, shop.layout.bronze(shop.name))
    source = FileSource(list(lines([write(tmp_path / "said", events(), None) / "events.jsonl"])))
    capture = Capture(spark, source, bronze, rules_of(shop).naming, 10, merges=True)
    assert capture.step() == 10
    assert bronze.between(0, 1).inputFiles()
    assert [group["count"] for group in bronze.counted[0][1]], "they are counted all the same"
