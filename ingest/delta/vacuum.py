"""Removes old versions of tables: the files that only they need, and their part of the log.

A stream commits every second: half a million commits a week, each with files of its own, and each checkpoint with the
list of all files removed since. Without an end to it each commit would cost more than the one before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from ingest.delta import orphan_files, read_table
from ingest.delta.delta_table import CHECKPOINTS, Table
from ingest.tuning import DEFAULT_TUNING, Tuning

_AT_ONCE = 4
_FORMER_CHECKPOINTS = {"delta.checkpointInterval": "1000"}
"""Property of tables of older versions, which wrote the checkpoints themselves."""
_SHORT_RETENTION = "spark.databricks.delta.retentionDurationCheck.enabled"
_LISTING_TASKS = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
"""Spark's default of 10,000 costs half a minute for a folder of three files."""
_LOGGED = "spark.databricks.delta.vacuum.logging.enabled"
"""Two commits that change nothing, on local disks only: nearly half the time for a small table."""


def existing_tables(spark: SparkSession, folders: Sequence[str]) -> list[str]:
    """Returns the folders that hold a Delta table."""
    return [folder for folder in folders if read_table.exists(spark, folder)]


def set_retention(spark: SparkSession, paths: Sequence[str], properties: Mapping[str, str]) -> None:
    """Sets the retention properties of tables, and `CHECKPOINTS` of older ones, where they differ. Such a commit
    conflicts with every other one that is under way: the other writer has to start anew."""
    for path in paths:
        table = Table(spark, path)
        wanted = dict(properties)
        if any(table.property(name) == value for name, value in _FORMER_CHECKPOINTS.items()):
            wanted |= CHECKPOINTS
        if any(table.property(name) != value for name, value in wanted.items()):
            table.set_properties(wanted)


def remove_old_versions(spark: SparkSession, paths: Sequence[str], hours: int | None = None) -> None:
    """Removes versions older than `hours`, or than each table's own retention, with their part of the log. They can't
    be read any more, and a write that has taken longer than that loses its uncommitted files."""
    for path in paths:
        # Delta shortens logs as well, but by whole days.
        Table(spark, path).shorten_log(hours)
    remove_old_files(spark, paths, hours)


def remove_old_files(
    spark: SparkSession, paths: Sequence[str], hours: int | None = None, tuning: Tuning = DEFAULT_TUNING
) -> None:
    """Deletes the files below these tables that belong to no version younger than `hours`, or than each table's own
    retention. Older versions can't be read any more, and a write that has taken longer than that loses its uncommitted
    files. `hours` is whole: Delta rounds, and would make zero of a short time."""
    tasks = str(4 * spark.sparkContext.defaultParallelism)

    def vacuum(path: str) -> None:
        if not orphan_files.delete_orphans(spark, path, hours, tuning):
            DeltaTable.forPath(spark, path).vacuum(hours)

    settings = {_SHORT_RETENTION: "false", _LISTING_TASKS: tasks, _LOGGED: "false"}
    with _settings(spark, settings), ThreadPoolExecutor(_AT_ONCE) as pool:
        deque(pool.map(vacuum, paths), maxlen=0)


@contextmanager
def _settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Sets settings of the session in the block."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)
