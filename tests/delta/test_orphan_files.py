"""Orphan files are exactly those that Delta's VACUUM would remove."""

from __future__ import annotations

import os
import re
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ingest.delta import log_cache, orphan_files, vacuum
from ingest.delta.delta_table import Table
from ingest.tuning import DEFAULT_TUNING

pytestmark = pytest.mark.spark
KEPT = {
    "delta.enableDeletionVectors": "true",
    "delta.enableChangeDataFeed": "true",
    "delta.deletedFileRetentionDuration": "interval 1 hour",
}
HOUR = 3600


def table_with_history(spark: SparkSession, folder: Path, table_properties: dict[str, str]) -> Table:
    """Returns a table with inserts, deletes (twice in one file), a compaction, and files that were never committed."""
    table = Table(spark, str(folder))
    for n in range(4):
        table.commit(spark.range(10 * n, 10 * n + 10, numPartitions=1), properties=table_properties)
    table.delete(F.col("id").isin(3, 14))
    table.delete(F.col("id").isin(4, 25) | (F.col("id") >= 30))
    files = list(table.files().values())
    table.rewrite(files[:2], table.rows_in(files[:2]).coalesce(1))
    table.delete(F.col("id").isin(5, 26))
    for strange in ("never-committed.parquet", "deletion_vector_of_nobody.bin", "_not_its_own/x", ".hidden", "a/b/c"):
        (folder / strange).parent.mkdir(parents=True, exist_ok=True)
        (folder / strange).write_bytes(b"x")
    return table


@pytest.fixture(scope="module")
def original(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("left over") / "t"
    table_with_history(spark, folder, KEPT)
    return folder


@pytest.fixture
def table(spark: SparkSession, original: Path, tmp_path: Path) -> Table:
    """Returns a copy of the table for one test."""
    return Table(spark, str(shutil.copytree(original, tmp_path / "t")))


def aged(spark: SparkSession, table: Table, hours: float) -> Table:
    """Returns the table as if all had been written and removed `hours` earlier."""

    def before(match: re.Match[str]) -> str:
        return match[1] + str(int(match[2]) - int(hours * HOUR * 1000))

    for file in filter(Path.is_file, Path(table.path).rglob("*")):
        moment = file.stat().st_mtime - hours * HOUR
        if file.suffix == ".json":
            file.write_text(re.sub(r'("deletionTimestamp":)(\d+)', before, file.read_text()))
        os.utime(file, (moment, moment))
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
    log_cache._shared.cache_clear()
    return Table(spark, table.path)


def files_below(folder: Path) -> set[str]:
    return {str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file() and "_delta_log" not in f.parts}


def vacuum_deletes(spark: SparkSession, table: Table, hours: int | None) -> set[str]:
    """Returns the files of the table that VACUUM would delete."""
    settings = {vacuum._SHORT_RETENTION: "false", vacuum._LISTING_TASKS: "2"}
    retain = "" if hours is None else f"RETAIN {hours} HOURS"
    with vacuum._settings(spark, settings):
        vacuumed = spark.sql(f"VACUUM delta.`{table.path}` {retain} DRY RUN").collect()
    gone = {row.path.removeprefix(f"file:{table.path}/") for row in vacuumed}
    return {name for name in gone if (Path(table.path) / name).is_file()}


@pytest.mark.parametrize(
    ("hours", "age"),
    [(0, 0), *(pytest.param(*one, marks=pytest.mark.long) for one in ((1, 2), (1, 0.5), (None, 2)))],
)
def test_orphans_equal_those_of_vacuum(spark: SparkSession, table: Table, hours: int | None, age: float) -> None:
    assert_orphans_equal_vacuum(spark, aged(spark, table, age), hours)
    if hours == 0 or age > 1:
        assert {"never-committed.parquet", "deletion_vector_of_nobody.bin", "a/b/c"}.isdisjoint(
            files_below(Path(table.path))
        )
    assert {"_not_its_own/x", ".hidden"} <= files_below(Path(table.path))


@pytest.mark.long
def test_orphans_equal_those_of_vacuum_without_deletion_vectors(spark: SparkSession, tmp_path: Path) -> None:
    table = table_with_history(spark, tmp_path / "t", KEPT | {"delta.enableDeletionVectors": "false"})
    assert_orphans_equal_vacuum(spark, aged(spark, table, 2), None)


def assert_orphans_equal_vacuum(spark: SparkSession, table: Table, hours: int | None) -> None:
    # A commit after all others writes and removes files.
    table.commit(spark.range(100, 110, numPartitions=1))
    table.delete(F.col("id") > 104)
    time.sleep(0.01)
    before, ids = files_below(Path(table.path)), sorted(row.id for row in table.rows().collect())
    expected = vacuum_deletes(spark, table, hours)
    assert orphan_files.delete_orphans(spark, table.path, hours)
    assert before - files_below(Path(table.path)) == expected
    assert sorted(row.id for row in spark.read.format("delta").load(table.path).collect()) == ids


@pytest.mark.long
def test_kept_versions_stay_readable(spark: SparkSession, table: Table) -> None:
    def counts() -> list[int]:
        as_of = (spark.read.format("delta").option("versionAsOf", v) for v in range(table.version() + 1))
        return [version.load(table.path).count() for version in as_of]

    before = counts()
    assert orphan_files.delete_orphans(spark, table.path, 1)
    assert counts() == before


def test_unsupported_table_is_left_to_vacuum(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    """Tables with partitions, with many files, with many commits in the retention time, or with a log that begins
    later."""
    frame = spark.range(4, numPartitions=1).withColumn("part", F.lit(1))
    frame.write.format("delta").partitionBy("part").save(str(tmp_path / "parts"))
    assert not orphan_files.delete_orphans(spark, str(tmp_path / "parts"), 0)
    for tuning in (
        replace(DEFAULT_TUNING, orphan_search_files=1),
        replace(DEFAULT_TUNING, orphan_search_commits=1),
        replace(DEFAULT_TUNING, cached_scan_files=1),
    ):
        before = files_below(Path(table.path))
        assert not orphan_files.delete_orphans(spark, table.path, 1, tuning)
        assert files_below(Path(table.path)) == before
    table._log.checkpoint(table._newest_snapshot(), table._delta.none)
    for version in range(table.version()):
        Path(table.path, "_delta_log", f"{version:020}.json").unlink()
    assert not orphan_files.delete_orphans(spark, table.path, 1)


def test_vacuum_cleans_unsupported_tables(spark: SparkSession, table: Table) -> None:
    time.sleep(0.01)
    vacuum.remove_old_files(spark, [table.path], 0, replace(DEFAULT_TUNING, orphan_search_files=1))
    assert "never-committed.parquet" not in files_below(Path(table.path))
    assert DeltaTable.forPath(spark, table.path).toDF().count() == len(table.rows().collect())
