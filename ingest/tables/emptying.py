"""Rows that go for good. Their files are written anew, in commits that change nothing for who follows the table; the
files that held them are old then, and go with `old_files_removed`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.changelog.change import quoted
from ingest.tables.contention import again
from ingest.tables.data_file import DataFile
from ingest.tables.delta_log import Table

_FILE = "_file"
_AT_ONCE = 4
_SHORT_RETENTION = "spark.databricks.delta.retentionDurationCheck.enabled"
_LISTING_TASKS = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
"""Spark's default of 10,000 costs half a minute for a folder of three files."""

LaidOut = Callable[[DataFrame, int], DataFrame]
"""How rows are to lie in so many files."""


def without(table: Table, gone: DataFrame, on: Sequence[str], laid_out: LaidOut) -> int:
    """Takes away the rows that are like one of `gone` in the columns `on`. How many files that concerned."""

    def left(rows: DataFrame) -> DataFrame:
        return rows.join(F.broadcast(gone.select(*on)), list(on), "left_anti")

    written: int = again()(_anew, table, gone, on, left, laid_out)
    return written


def emptied(table: Table, places: DataFrame, on: Sequence[str], told: Mapping[str, Column], laid_out: LaidOut) -> int:
    """Puts `told` into the rows that are like one of `places` in the columns `on`, of which other columns may be used
    there. How many files that concerned."""

    def left(rows: DataFrame) -> DataFrame:
        marked = places.select(*(F.col(c) if c in on else F.col(c).alias(f"_{c}") for c in places.columns), _here())
        joined = rows.join(F.broadcast(marked), list(on), "left")
        changed = {name: F.when(F.col("_here"), value).otherwise(F.col(name)) for name, value in told.items()}
        return joined.withColumns(changed).select(*map(quoted, rows.columns))

    written: int = again()(_anew, table, places, on, left, laid_out)
    return written


def _here() -> Column:
    return F.lit(True).alias("_here")


def _anew(
    table: Table, wanted: DataFrame, on: Sequence[str], left: Callable[[DataFrame], DataFrame], laid_out: LaidOut
) -> int:
    files = holding(table, wanted, on)
    if files:
        table.rewrite(files, laid_out(left(table.rows_in(files)), len(files)))
    return len(files)


def holding(table: Table, wanted: DataFrame, on: Sequence[str]) -> list[DataFile]:
    """The files in which a row lies that is like one of `wanted` in the columns `on`."""
    live = table.files() if table.exists() else {}
    if not live:
        return []
    there = table.rows_in(live.values()).select(*on, F.col("_metadata.file_name").alias(_FILE))
    found = there.join(F.broadcast(wanted.select(*on)), list(on), "left_semi").select(_FILE).distinct()
    return [live[row[_FILE]] for row in found.collect()]  # a row per file


def old_files_removed(spark: SparkSession, paths: Sequence[str], hours: float) -> None:
    """Deletes the files below these tables that are in no version that is younger than `hours`: nobody reads older
    versions from then on. Whoever has been writing for longer than that loses what he has not committed."""
    tasks = str(4 * spark.sparkContext.defaultParallelism)

    def vacuum(path: str) -> None:
        DeltaTable.forPath(spark, path).vacuum(hours)

    with _settings(spark, {_SHORT_RETENTION: "false", _LISTING_TASKS: tasks}), ThreadPoolExecutor(_AT_ONCE) as pool:
        deque(pool.map(vacuum, paths), maxlen=0)


@contextmanager
def _settings(spark: SparkSession, told: Mapping[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in told}
    for name, value in told.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)
