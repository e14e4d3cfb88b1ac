"""The snapshot of a table is the newest one, whoever committed."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from ingest.delta.delta_table import Table
from ingest.tuning import DEFAULT_TUNING

pytestmark = pytest.mark.spark


def _written(spark: SparkSession, path: Path, commits: int = 3) -> Table:
    table = Table(spark, str(path), replace(DEFAULT_TUNING, fresh_snapshot_seconds=0.0))
    for number in range(commits):
        table.pin_snapshot("w")
        table.commit(spark.range(number, number + 1))
    return table


def _append(path: Path) -> None:
    write_deltalake(str(path), pa.table({"id": pa.array([100], pa.int64())}), mode="append")


def test_commits_of_another_process_are_seen(spark: SparkSession, tmp_path: Path) -> None:
    table = _written(spark, tmp_path / "t")
    assert not table.pin_snapshot("w")
    for version in (3, 4):
        _append(tmp_path / "t")
        assert table.pin_snapshot("w"), "another writer has committed"
        assert (table.version(), len(table.files())) == (version, version + 1)


def test_replaced_table_is_seen(spark: SparkSession, tmp_path: Path) -> None:
    """The other table has the same number of versions."""
    table = _written(spark, tmp_path / "t")
    before = table._newest_snapshot().metadata().id()
    shutil.rmtree(tmp_path / "t")
    for _ in range(3):
        _append(tmp_path / "t")
    assert table.version() == 2
    assert table._newest_snapshot().metadata().id() != before
