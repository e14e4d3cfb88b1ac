"""Vacuums the tables of a stream while it runs, on a background thread."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from pyspark.sql import SparkSession

from ingest.config import Pipeline
from ingest.delta import vacuum
from ingest.delta.conflict_retry import retry_on_conflict
from ingest.jvm.causes import ENGINE_ERRORS
from ingest.upkeep.old_files import every_table

_log = logging.getLogger(__name__)
_MAX_SECONDS = 3600.0
_RETENTION_FRACTION = 1 / 4
"""Old versions may stay for longer than their retention by this fraction of it."""


@contextmanager
def upkeep(spark: SparkSession, pipeline: Pipeline) -> Iterator[Callable[[], None]]:
    """Yields a function to call between batches. Waits for a vacuum under way on exit."""
    with ThreadPoolExecutor(1, thread_name_prefix="upkeep") as executor:
        job = _Upkeep(spark, pipeline, executor)
        yield job.between_batches
        job.end()


class _Upkeep:
    """The upkeep of one stream."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, executor: ThreadPoolExecutor) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._executor = executor
        self._interval = min(_MAX_SECONDS, pipeline.old_versions.keep_hours * 3600 * _RETENTION_FRACTION)
        self._due = time.monotonic() + self._interval
        self._vacuuming: Future[None] | None = None

    def between_batches(self) -> None:
        """Begins a vacuum if one is due, and returns at once: batches run meanwhile.

        It is called between batches because setting a table's retention is a commit, which would conflict with a batch.
        """
        if time.monotonic() < self._due or (self._vacuuming is not None and not self._vacuuming.done()):
            return
        self.end()
        self._due = time.monotonic() + self._interval
        tables = vacuum.existing_tables(self._spark, every_table(self._spark, self._pipeline))
        retry_on_conflict()(vacuum.set_retention, self._spark, tables, self._pipeline.old_versions.properties)
        self._vacuuming = self._executor.submit(self._vacuum, tables)

    def end(self) -> None:
        """Waits for the vacuum under way and raises its exception."""
        if self._vacuuming is not None:
            self._vacuuming.result()
            self._vacuuming = None

    def _vacuum(self, tables: list[str]) -> None:
        """Vacuums one table after the other, to leave cores to the batches."""
        for path in tables:
            try:
                vacuum.remove_old_versions(self._spark, [path])
            except ENGINE_ERRORS as error:
                # A failed vacuum doesn't stop the stream; the next one is due in `_interval` seconds.
                _log.warning(
                    "old versions of %s stay for another %.0f minutes: %s",
                    path,
                    self._interval / 60,
                    type(error).__name__,
                )
