"""The cached Delta log gives the same files as Delta's own snapshot, for commits of any writer and logs of any
length."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ingest.delta import log_cache
from ingest.delta.classes import as_list
from ingest.delta.data_file import data_file
from ingest.delta.delta_table import Table
from ingest.delta.txn_versions import TxnVersion
from ingest.tuning import DEFAULT_TUNING

pytestmark = pytest.mark.spark
VECTORS = {"delta.enableDeletionVectors": "true"}
ROWS = 10
_ASKS = "UnresolvedDataSource format: delta"


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    """Clears the caches of other tests."""
    log_cache._shared.cache_clear()
    yield
    log_cache._shared.cache_clear()


@pytest.fixture
def delta_reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Records the snapshots whose files Delta had to compute."""
    found: list[str] = []
    files_of = log_cache._files_of

    def counted(snapshot: Any) -> Any:
        found.append(str(snapshot.path()))
        return files_of(snapshot)

    monkeypatch.setattr(log_cache, "_files_of", counted)
    return found


def opened(spark: SparkSession, folder: Path, **changes: Any) -> Table:
    """Opens a table that sees new commits at once."""
    return Table(spark, str(folder), replace(DEFAULT_TUNING, fresh_snapshot_seconds=0.0, **changes))


def written(spark: SparkSession, folder: Path, commits: int = 3) -> Table:
    table = opened(spark, folder)
    for n in range(commits):
        frame = spark.range(ROWS * n, ROWS * (n + 1), numPartitions=1)
        table.commit(frame, txn_version=TxnVersion("w", n + 1), properties=VECTORS)
    return table


def check_against_delta(spark: SparkSession, *tables: Table) -> None:
    """Compares files, transaction versions and rows with those of Delta's own snapshot."""
    for table in tables:
        snapshot = table._newest_snapshot()
        expected = {(f.name, f.vector_id, f.rows) for f in map(data_file, snapshot.allFiles().collect())}
        txn_versions = {m.appId(): m.version() for m in as_list(snapshot.setTransactions())}
        ids = {row.id for row in spark.read.format("delta").load(table.path).collect()}
        assert {(f.name, f.vector_id, f.rows) for f in table.files().values()} == expected
        assert {name: table.txn_version(name) for name in txn_versions} == txn_versions
        assert {row.id for row in table.rows().collect()} == ids


def test_commits_of_other_writers_are_read(spark: SparkSession, tmp_path: Path, delta_reads: list[str]) -> None:
    table = written(spark, tmp_path / "t")
    # Some rows of one file, all rows of another.
    table.delete(F.col("id").isin(3, 4) | (F.col("id") >= 2 * ROWS))
    check_against_delta(spark, table, opened(spark, tmp_path / "t"))
    write_deltalake(str(tmp_path / "t"), pa.table({"id": pa.array([100, 101], pa.int64())}), mode="append")
    table.set_property("x.y", "z")
    table.delete(F.col("id").isin(5, 100))
    check_against_delta(spark, table, opened(spark, tmp_path / "t"))
    assert delta_reads == []


@pytest.mark.long
def test_cache_is_shared_between_tables_objects(spark: SparkSession, tmp_path: Path, delta_reads: list[str]) -> None:
    one = written(spark, tmp_path / "t", log_cache._READ_ONE_BY_ONE + 5)
    other = opened(spark, tmp_path / "t")
    files = list(other.files().values())
    other.rewrite(files[:3], other.rows_in(files[:3]).coalesce(1))
    check_against_delta(spark, one, other)
    assert delta_reads == []


@pytest.mark.long
def test_long_log_is_read_by_delta(spark: SparkSession, tmp_path: Path, delta_reads: list[str]) -> None:
    written(spark, tmp_path / "t", log_cache._READ_ONE_BY_ONE + 1)
    log_cache._shared.cache_clear()
    table = opened(spark, tmp_path / "t")
    check_against_delta(spark, table)
    assert len(delta_reads) == 1
    table.commit(spark.range(1000, 1001))
    check_against_delta(spark, table)
    assert len(delta_reads) == 1


def test_log_that_begins_with_a_checkpoint_is_read(spark: SparkSession, tmp_path: Path, delta_reads: list[str]) -> None:
    table = written(spark, tmp_path / "t")
    table._log.checkpoint(table._newest_snapshot(), table._delta.none)
    for version in range(2):
        (tmp_path / "t" / "_delta_log" / f"{version:020}.json").unlink()
    log_cache._shared.cache_clear()
    check_against_delta(spark, opened(spark, tmp_path / "t"))
    assert len(delta_reads) == 1


def test_removal_of_an_unknown_file_falls_back_to_delta(
    spark: SparkSession, tmp_path: Path, delta_reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program may write the name of a removed file in another form."""
    table = written(spark, tmp_path / "t")
    snapshot = table._newest_snapshot()
    monkeypatch.setattr(table._log_cache(snapshot)._versions[-1], "files", {})
    table.delete(F.col("id") < ROWS)
    check_against_delta(spark, table)
    assert len(delta_reads) == 1


@pytest.mark.long
def test_replaced_table_is_read_again(spark: SparkSession, tmp_path: Path) -> None:
    """The other table has the same number of versions."""
    table = written(spark, tmp_path / "t")
    check_against_delta(spark, table)
    shutil.rmtree(tmp_path / "t")
    for number in range(3):
        write_deltalake(str(tmp_path / "t"), pa.table({"id": pa.array([number], pa.int64())}), mode="append")
    check_against_delta(spark, table, opened(spark, tmp_path / "t"))


@pytest.mark.long
def test_delta_reads_tables_of_many_files(spark: SparkSession, tmp_path: Path) -> None:
    """Delta skips most of their files by statistics."""
    table = written(spark, tmp_path / "t")
    assert _ASKS not in table.rows()._jdf.queryExecution().toString()
    table = opened(spark, tmp_path / "t", cached_scan_files=2)
    assert _ASKS in table.rows()._jdf.queryExecution().toString()
    check_against_delta(spark, table)


def test_absent_table_has_no_files(spark: SparkSession, tmp_path: Path) -> None:
    """Reading a table that must exist fails, rather than returning no rows."""
    with pytest.raises(AnalysisException, match=r"PATH_NOT_FOUND|DELTA_MISSING_DELTA_TABLE|DELTA_PATH_DOES_NOT_EXIST"):
        opened(spark, tmp_path / "t").rows().collect()
    assert opened(spark, tmp_path / "t").files() == {}


def test_old_version_stays_readable_after_commits(spark: SparkSession, tmp_path: Path) -> None:
    table = written(spark, tmp_path / "t")
    newest, before = table.rows_at(2), table.rows_at(1)
    table.delete(F.col("id") >= 0)
    assert (newest.count(), before.count(), table.rows().count()) == (3 * ROWS, 2 * ROWS, 0)
