"""Delta writes checkpoints of every table after as many commits as the project wants."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ingest.config.old_versions import OldVersions
from ingest.delta.delta_table import Table
from ingest.delta.vacuum import set_retention

pytestmark = pytest.mark.spark
INTERVAL = "delta.checkpointInterval"
RETENTION = OldVersions(keep_hours=2).properties


def checkpoint_versions(folder: Path) -> list[int]:
    """Returns the versions that have a checkpoint."""
    return sorted(int(f.name.split(".")[0]) for f in (folder / "_delta_log").glob("*.checkpoint*.parquet"))


def commit(spark: SparkSession, folder: Path, commits: int, **properties: str) -> Table:
    table = Table(spark, str(folder))
    for n in range(commits):
        table.commit(spark.range(n, n + 1), properties=properties)
    return table


def test_every_table_gets_the_interval(spark: SparkSession, tmp_path: Path) -> None:
    created = Table(spark, str(tmp_path / "created"))
    created.create(spark.range(0).schema, {})
    committed = commit(spark, tmp_path / "committed", 1)
    assert (created.property(INTERVAL), committed.property(INTERVAL)) == ("100", "100")


def test_checkpoint_interval_of_the_table_is_respected(spark: SparkSession, tmp_path: Path) -> None:
    table = commit(spark, tmp_path / "t", 4, **{INTERVAL: "3"})
    set_retention(spark, [table.path], RETENTION)
    assert table.property(INTERVAL) == "3"
    assert checkpoint_versions(tmp_path / "t") == [3]


def test_table_of_an_older_version_gets_the_new_interval(spark: SparkSession, tmp_path: Path) -> None:
    table = commit(spark, tmp_path / "t", 1, **{INTERVAL: "1000"})
    set_retention(spark, [table.path], RETENTION)
    table.version()
    assert table.property(INTERVAL) == "100"
    assert {name: table.property(name) for name in RETENTION} == RETENTION
