"""Versions of tables that are too old to be asked for: what only they need goes, their files and their part of the log.

A stream commits every second. Within a week that is half a million commits to a table, each with files of its own, and
every hundredth with a list of all files that went since then: without an end to it each costs more than the one before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from ingest.delta import orphan_files
from ingest.delta.delta_table import Table

_AT_ONCE = 4
_SHORT_RETENTION = "spark.databricks.delta.retentionDurationCheck.enabled"
_LISTING_TASKS = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
"""Spark's default of 10,000 costs half a minute for a folder of three files."""
_LOGGED = "spark.databricks.delta.vacuum.logging.enabled"
"""Two commits that change nothing, on local disks alone: nearly half the time of a small table."""


def set_retention(spark: SparkSession, paths: Sequence[str], properties: Mapping[str, str]) -> None:
    """Lets these tables hold `properties`, which say how long Delta keeps old versions of them. Nobody may be about to
    commit to one of them: where it has others, he would have to begin anew."""
    for path in paths:
        table = Table(spark, path)
        if any(table.property(name) != value for name, value in properties.items()):
            table.set_properties(properties)


def remove_old_versions(spark: SparkSession, paths: Sequence[str], hours: int | None = None) -> None:
    """Deletes what only versions need that are older than `hours`, or than these tables say themselves: nobody reads
    them from then on. Whoever has been writing for longer than that loses what he has not committed."""
    for path in paths:
        # Delta itself shortens logs as well, by whole days.
        Table(spark, path).shorten_log(hours)
    remove_old_files(spark, paths, hours)


def remove_old_files(spark: SparkSession, paths: Sequence[str], hours: int | None = None) -> None:
    """Deletes the files below these tables that are in no version that is younger than `hours`, or than they say
    themselves: nobody reads older versions from then on. Whoever has been writing for longer than that loses what he
    has not committed. Hours are whole: Delta rounds them, and of a short one it makes none."""
    tasks = str(4 * spark.sparkContext.defaultParallelism)

    def vacuum(path: str) -> None:
        if not orphan_files.delete_orphans(spark, path, hours):
            DeltaTable.forPath(spark, path).vacuum(hours)

    settings = {_SHORT_RETENTION: "false", _LISTING_TASKS: tasks, _LOGGED: "false"}
    with _settings(spark, settings), ThreadPoolExecutor(_AT_ONCE) as pool:
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
