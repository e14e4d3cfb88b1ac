"""Quarantine: events that can't be applied, whole, with where they came from and why. Nothing is lost.

A batch that adds events looks for the same coordinates only in files whose statistics say that they may hold them, so
its cost does not follow what waits there already. Statistics are of coordinates alone, never of a key or a value.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.envelope import BATCH, RECORD
from ingest.delta import compaction, delta_table
from ingest.delta.compaction import BackgroundCompaction
from ingest.delta.conflict_retry import retry_on_conflict
from ingest.delta.data_file import DataFile
from ingest.lakehouse import row_rewrites
from ingest.lakehouse.bronze import COORDINATES
from ingest.spark.checkpoints import checkpoint_until_unpersisted, unpersist

SET_ASIDE = "table-set-aside"
"""The code of events that wait in bronze because their table is set aside."""

_SCHEMA = T.StructType(
    [
        T.StructField("pipeline", T.StringType()),
        T.StructField("table", T.StringType()),
        *RECORD.fields,
        T.StructField(BATCH, T.LongType()),
        T.StructField("code", T.StringType()),
        T.StructField("reason", T.StringType()),
    ]
)
_STATISTICS = {"delta.dataSkippingStatsColumns": ",".join(COORDINATES)}
_RANGES_IN_A_FILTER = 20
"""Topic partitions: of more, whole files are read rather than their pages."""


@dataclass(frozen=True)
class _Offsets:
    """The lowest and the highest offset of some events of a topic partition."""

    topic: str
    partition: int
    lowest: int
    highest: int

    def may_be_in(self, file: DataFile) -> bool:
        """Whether the file's statistics leave it open."""
        ends = ((self.topic, self.topic), (self.partition, self.partition), (self.lowest, self.highest))
        bounds = map(file.bounds, COORDINATES)
        return all(b is None or (b[0] <= high and low <= b[1]) for b, (low, high) in zip(bounds, ends, strict=True))

    @property
    def condition(self) -> Column:
        """Selects the events there."""
        here = (F.col("topic") == self.topic) & (F.col("partition") == self.partition)
        return here & F.col("offset").between(self.lowest, self.highest)


class Quarantine:
    """The quarantine of a lakehouse, all pipelines in one table."""

    def __init__(self, spark: SparkSession, path: str, pipeline: str) -> None:
        self._table = delta_table.Table(spark, path)
        self._compaction = BackgroundCompaction(self._table)
        self._pipeline = pipeline
        # Tables are merged side by side; two first appends at once would both make the table.
        self._commit_lock = threading.Lock()
        self._has_grown = False

    def rows(self) -> DataFrame:
        """Of this pipeline alone."""
        return self._mine(self._table.rows(_SCHEMA))

    def add(self, events: DataFrame, waiting: bool = False) -> None:
        """Bronze rows with `table`, `code` and `reason`. Coordinates that are here already add nothing. `waiting`: they
        are here only because their table is set aside."""
        named = events.withColumn("pipeline", F.lit(self._pipeline)).select(*_SCHEMA.names)
        with self._commit_lock:
            retry_on_conflict()(self._append_new, named, waiting)
            self._has_grown = True

    def remove(self, gone: DataFrame) -> int:
        """Takes away the events at these `COORDINATES`. How many files were written anew for it."""
        return self._without(gone, COORDINATES)

    def release(self, table: str, after: int, upto: int) -> int:
        """Takes away the events of the capture batches `after` < batch ≤ `upto` that waited because their table was set
        aside. Returns how many files were written anew."""
        waiting = (F.col("table") == table) & (F.col("code") == SET_ASIDE)
        inside = (F.col(BATCH) > after) & (F.col(BATCH) <= upto)
        return self._without(self.rows().where(waiting & inside), [*COORDINATES, "code"])

    def _without(self, gone: DataFrame, same: Sequence[str]) -> int:
        mine = gone.select(*same).withColumn("pipeline", F.lit(self._pipeline))
        return row_rewrites.remove_rows(self._table, mine, ["pipeline", *same], _laid_out)

    def compact(self) -> bool:
        """Writes small files together, where events have been added since and it is time to. Returns whether it
        was."""
        if not self._has_grown:
            return False
        self._has_grown = False
        files = compaction.files_due(self._table.files().values(), files_per_size=compaction.FILES_PER_SIZE_UNREAD)
        return self._compaction.compact(files, lambda due: _laid_out(self._table.rows_in(due), 1))

    def _append_new(self, named: DataFrame, waiting: bool) -> None:
        # Computed once: their bounds are needed before they are written.
        come = checkpoint_until_unpersisted(named)
        try:
            self._table.commit(self._not_there(come, waiting), properties=_STATISTICS)
        finally:
            unpersist(come)

    def _not_there(self, come: DataFrame, waiting: bool) -> DataFrame:
        """Returns those of the events `come` whose coordinates are not in quarantine."""
        if not self._table.exists():
            return come
        if self._table.property(next(iter(_STATISTICS))) is None:
            self._table.set_properties(_STATISTICS)  # An older table: files from here on have statistics.
        self._table.version()  # Another process may have added the same events.
        ranges = _offsets_of(come)
        files = [f for f in self._table.files().values() if any(r.may_be_in(f) for r in ranges)]
        if not files:
            return come
        known = self._mine(self._table.rows_in(files))
        if not waiting:
            # An event stands here for itself, though it may have waited for its table.
            known = known.where(F.col("code") != SET_ASIDE)
        if len(ranges) <= _RANGES_IN_A_FILTER:
            known = known.where(reduce(lambda one, other: one | other, (r.condition for r in ranges)))
        return come.join(known.select(*COORDINATES), COORDINATES, "left_anti").select(*_SCHEMA.names)

    def _mine(self, rows: DataFrame) -> DataFrame:
        return rows.where(F.col("pipeline") == self._pipeline)


def _offsets_of(events: DataFrame) -> Sequence[_Offsets]:
    ends = F.min("offset").alias("lowest"), F.max("offset").alias("highest")
    found = events.groupBy("topic", "partition").agg(*ends).collect()  # a row per topic partition
    return [_Offsets(r["topic"], r["partition"], r["lowest"], r["highest"]) for r in found]


def _laid_out(rows: DataFrame, files: int) -> DataFrame:
    """In the order of their coordinates, so that a page of a file has few of them."""
    order = ["pipeline", *COORDINATES]
    return (rows.repartitionByRange(files, *order) if files > 1 else rows.coalesce(1)).sortWithinPartitions(*order)
