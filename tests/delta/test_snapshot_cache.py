"""The cached snapshot is the newest one, whoever committed; the log is not listed if nothing was committed."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from ingest.delta.delta_table import Table
from ingest.tuning import DEFAULT_TUNING

pytestmark = pytest.mark.spark


class Counted:
    """A `DeltaLog` that counts how often it is listed."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self.listings = 0

    def update(self, *arguments: Any) -> Any:
        self.listings += 1
        return self._log.update(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


def _written(spark: SparkSession, path: Path, commits: int = 3) -> tuple[Table, Counted]:
    table = Table(spark, str(path), replace(DEFAULT_TUNING, fresh_snapshot_seconds=0.0))
    for number in range(commits):
        table.pin_snapshot("w")
        table.commit(spark.range(number, number + 1))
    counted = Counted(table._log)
    table._snapshots._log = counted
    return table, counted


def _append(path: Path) -> None:
    write_deltalake(str(path), pa.table({"id": pa.array([100], pa.int64())}), mode="append")


def test_log_is_not_listed_without_other_writers(spark: SparkSession, tmp_path: Path) -> None:
    table, log = _written(spark, tmp_path / "t")
    for number in range(3):
        assert not table.pin_snapshot("w")
        table.commit(spark.range(number, number + 1))
    assert (table.version(), len(table.files()), log.listings) == (5, 6, 0)


def test_commits_of_another_process_are_seen(spark: SparkSession, tmp_path: Path) -> None:
    table, log = _written(spark, tmp_path / "t")
    for version in (3, 4):
        _append(tmp_path / "t")
        assert table.pin_snapshot("w"), "another writer has committed"
        assert (table.version(), len(table.files())) == (version, version + 1)
    assert log.listings == 2


def test_replaced_table_is_seen(spark: SparkSession, tmp_path: Path) -> None:
    """The other table has the same number of versions."""
    table, _ = _written(spark, tmp_path / "t")
    before = table._snapshots.newest().metadata().id()
    shutil.rmtree(tmp_path / "t")
    for _ in range(3):
        _append(tmp_path / "t")
    assert table.version() == 2
    assert table._snapshots.newest().metadata().id() != before
