"""Reads bronze by its capture batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.changelog.envelope import BATCH, CAPTURED
from ingest.changelog.origin import TableNaming
from ingest.delta import delta_table
from ingest.delta.data_file import DataFile
from ingest.lakehouse.bronze.view import BronzeView
from ingest.tuning import DEFAULT_TUNING, Tuning

ORIGINS = "ingest.origins"
"""A property of bronze if every row has its origin."""

BatchStats = Sequence[Mapping[str, Any]]
"""Statistics of the events of some batches, a JSON object per group of events."""

_ROWS_A_TASK = 5000
_WINDOW_BYTES = 1 << 30


class BronzeBatches:
    """The capture batches of one pipeline's bronze."""

    chosen: Column | None = None
    """The condition of the events that are merged; None: all."""
    begins_after = 0
    """The merge starts after this batch."""

    def __init__(
        self,
        spark: SparkSession,
        path: str,
        epochs: Sequence[datetime] = (),
        names: TableNaming | None = None,
        tuning: Tuning = DEFAULT_TUNING,
    ) -> None:
        """`epochs`: the times at which the source's log began anew. `names`: how tables are named."""
        self.tuning = tuning
        self._view = BronzeView(tuple(epochs), names or TableNaming())
        self._has_origins = False
        self._table = delta_table.Table(spark, path, tuning)
        self._batch_stats: dict[int, tuple[int, BatchStats]] = {}

    def record_batch_stats(self, after: int, through_batch: int, stats: BatchStats) -> None:
        """Records the statistics of the batches `after` < batch ≤ `through_batch`, which this process has written."""
        self._batch_stats[after] = through_batch, stats

    def batch_stats(self) -> dict[int, tuple[int, BatchStats]]:
        """Returns the recorded statistics: the batch after which they begin → the last batch, and the statistics.
        Returns none if another writer has committed since: it may have erased events that the statistics count."""
        self._drop_outdated_stats()
        return self._batch_stats

    def _drop_outdated_stats(self) -> None:
        if self._batch_stats and not self._table.is_unchanged():
            self._batch_stats.clear()

    def rows(self) -> DataFrame:
        """Returns all events."""
        return self._viewed(self._table.rows(CAPTURED))

    def between(self, after: int, through_batch: int) -> DataFrame:
        """Returns the events of the capture batches `after` < batch ≤ `through_batch`."""
        if not self._table.exists():
            return self.rows()
        files = self._files(after, through_batch)
        rows = self._viewed(self._table.rows_in([f for f, _, _ in files]))
        if sum(f.rows for f, _, _ in files) <= _ROWS_A_TASK:
            # One partition needs no shuffle.
            rows = rows.coalesce(1)
        if all(after < low and high <= through_batch for _, low, high in files):
            return rows
        return rows.where((F.col(BATCH) > after) & (F.col(BATCH) <= through_batch))

    def all_between(self, after: int, through_batch: int) -> DataFrame:
        """Returns the events of these batches, those that are not `chosen` too."""
        return self.between(after, through_batch)

    def last_batch(self) -> int:
        """Returns the last capture batch that has rows, by the files' statistics, or by the rows of files without
        statistics; 0 if there is none."""
        if not self._table.exists():
            return 0
        self._table.version()  # Another process may be capturing.
        files = list(self._table.files().values())
        known = [bounds[1] for f in files if (bounds := f.bounds(BATCH)) is not None]
        unknown = [f for f in files if f.bounds(BATCH) is None]
        if unknown:
            row = self._table.rows_in(unknown).agg(F.max(BATCH).alias("last")).first()
            known += [row["last"]] if row is not None and row["last"] is not None else []
        return int(max(known, default=0))

    def window_end(self, after: int, last: int, events: int) -> int:
        """Returns the end of a window that starts after the batch `after` and has about `events` events, but no more
        than a gigabyte of files: a batch up to `last`, and at least the next one."""
        waiting = last - after
        windows = self._windows(after, last, events)
        return last if windows <= 1 else after + max(1, round(waiting / windows))

    def has_full_window(self, after: int, last: int, events: int) -> bool:
        """Returns True if these batches fill a window of `window_end`."""
        return self._windows(after, last, events) >= 1

    def _windows(self, after: int, last: int, events: int) -> float:
        """Returns how many windows these batches fill."""
        files = [f for f, _, _ in self._files(after, last)] if self._table.exists() else []
        return max(sum(f.rows for f in files) / events, sum(f.size for f in files) / _WINDOW_BYTES)

    def count_between(self, after: int, through_batch: int) -> int:
        """Returns an upper bound of the number of events that `between` returns, from the log."""
        return sum(f.rows for f, _, _ in self._files(after, through_batch)) if self._table.exists() else 0

    def _files(self, after: int, through_batch: int) -> list[tuple[DataFile, int, int]]:
        """Returns the files that may hold these batches, each with its lowest and its highest batch."""
        bounds = ((f, f.bounds(BATCH) or (after, through_batch)) for f in self._table.files().values())
        return [(f, low, high) for f, (low, high) in bounds if low <= through_batch and high > after]

    def _viewed(self, rows: DataFrame) -> DataFrame:
        """Returns rows by the pipeline file's present settings."""
        return self._view.of(rows, have_origins=not self._lacks_origins())

    def _lacks_origins(self) -> bool:
        """Returns True if the table is older than the column of origins."""
        if not self._has_origins:
            self._has_origins = not self._table.exists() or self._table.property(ORIGINS) is not None
        return not self._has_origins

    @property
    def folder(self) -> str:
        """Returns the path of the table."""
        return self._table.path

    @property
    def identity(self) -> str:
        """Returns an id that changes if another table takes the same place, or tables are named otherwise; empty if the
        table does not exist."""
        names = self._view.names
        table = self._table.identity() if self._table.exists() else ""
        return table if names.is_unqualified or not table else f"{table} {names.parts}"
