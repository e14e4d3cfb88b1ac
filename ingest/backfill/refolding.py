"""Folds tables of a running pipeline from their events again, if messages about their definitions came too late to
revise the stored rows, or creates of erased rows too late for the updates that follow them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from threading import Event

from pyspark.sql import SparkSession

from ingest.backfill.rebuilding import Rebuild
from ingest.changelog.accounting import Account
from ingest.config import Pipeline
from ingest.errors import ChangelogUnusable
from ingest.lakehouse.catalog import CatalogEntry
from ingest.loop.merge import Merge

_log = logging.getLogger(__name__)


class Refolding:
    """Rebuilds the tables that a merge names, once for each revision of their entries."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, stop: Event) -> None:
        """`stop`: ends a rebuild after the slice in hand; the next run continues it."""
        self._spark = spark
        self._pipeline = pipeline
        self._stop = stop
        self._tried: dict[str, int] = {}

    def run(self, merge: Merge | None, progressed: Callable[[], None] = lambda: None) -> list[str]:
        """Rebuilds the tables that `merge` names and returns the names of those that it is done with. To be called
        between its steps. `progressed`: is called after each slice. A table that can't be rebuilt is logged and stays
        as it is."""
        found = [] if merge is None else [e for e in merge.to_refold if self._is_new(e)]
        folded = [
            entry.table_schema.table for entry in found if not self._stop.is_set() and self._fold(entry, progressed)
        ]
        if merge is not None and folded:
            merge.refresh_tables()
        return folded

    def _is_new(self, entry: CatalogEntry) -> bool:
        return self._tried.get(entry.table_schema.table) != entry.revision

    def _fold(self, entry: CatalogEntry, progressed: Callable[[], None]) -> bool:
        """Returns False if the run is to end before the table is done, so that it is tried again."""
        table = entry.table_schema.table

        def report(_: Sequence[Account]) -> None:
            progressed()
            if self._stop.is_set():
                raise _Stopped

        _log.warning("%s is folded from its events again: %s", table, entry.refold)
        try:
            Rebuild(self._spark, self._pipeline, [table]).run(report)
        except _Stopped:
            return False
        except ChangelogUnusable as error:
            _log.error("%s can't be folded from its events again: %s", table, error)
        self._tried[table] = entry.revision
        return True


class _Stopped(Exception):
    """Ends a rebuild, which is continued later."""
