"""Delta checkpoints are written in the background, and none is skipped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ingest.delta import checkpoints
from ingest.delta.delta_table import Table
from ingest.spark.background import deferred_jobs
from ingest.tuning import DEFAULT_TUNING

pytestmark = pytest.mark.spark
EVERY = 3


def checkpoint_versions(folder: Path) -> list[int]:
    """Returns the versions that have a checkpoint."""
    return sorted(int(f.name.split(".")[0]) for f in (folder / "_delta_log").glob("*.checkpoint*.parquet"))


def committed(spark: SparkSession, folder: Path, commits: int, **properties: str) -> Table:
    table = Table(spark, str(folder), replace(DEFAULT_TUNING, commits_per_checkpoint=EVERY))
    for n in range(commits):
        table.commit(spark.range(n, n + 1), properties=properties)
    return table


def ids(spark: SparkSession, folder: Path) -> Sequence[Any]:
    return sorted(row.id for row in spark.read.format("delta").load(str(folder)).collect())


def test_commit_does_not_wait_for_a_checkpoint(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, write = Event(), checkpoints._write

    def delayed(*arguments: Any) -> None:
        assert done.wait(600)
        write(*arguments)

    monkeypatch.setattr(checkpoints, "_write", delayed)
    with deferred_jobs():
        committed(spark, tmp_path / "t", 2 * EVERY + 2)
        assert checkpoint_versions(tmp_path / "t") == []
        done.set()
    assert checkpoint_versions(tmp_path / "t") == [EVERY, 2 * EVERY]
    assert ids(spark, tmp_path / "t") == list(range(2 * EVERY + 2))


def test_checkpoint_is_written_with_the_commit_outside_of_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    committed(spark, tmp_path / "t", EVERY + 1)
    assert checkpoint_versions(tmp_path / "t") == [EVERY]


def test_checkpoint_interval_of_the_table_is_respected(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "_write", None)
    committed(spark, tmp_path / "t", EVERY + 1, **{"delta.checkpointInterval": str(EVERY)})
    assert checkpoint_versions(tmp_path / "t") == [EVERY]


def test_failing_checkpoint_stops_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Fails as a checkpoint does while the log can't be read."""
    write = checkpoints._write

    def unreadable(*arguments: Any) -> None:
        files = list((tmp_path / "t" / "_delta_log").glob("*.json"))
        moved = [file.rename(tmp_path / file.name) for file in files]
        write(*arguments)
        for file, away in zip(files, moved, strict=True):
            away.rename(file)

    monkeypatch.setattr(checkpoints, "_write", unreadable)
    throws = "spark.databricks.delta.checkpoint.exceptionThrowing.enabled"
    spark.conf.set(throws, "true")
    try:
        with deferred_jobs():
            committed(spark, tmp_path / "t", EVERY + 1)
    finally:
        spark.conf.unset(throws)
    assert "has no checkpoint of its newest commits" in caplog.text
    assert checkpoint_versions(tmp_path / "t") == []
    assert ids(spark, tmp_path / "t") == list(range(EVERY + 1))
