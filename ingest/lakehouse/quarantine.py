"""Quarantine: events that can't be applied, whole, with their coordinates and the reason.

Events are looked up before they are added, and only in files whose statistics admit their coordinates, so that the cost
of adding does not grow with the table. Statistics are of coordinates alone, never of a key or a value.
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
from ingest.delta.conflict_retry import retry_on_conflict
from ingest.delta.data_file import DataFile
from ingest.lakehouse import row_rewrites
from ingest.lakehouse.bronze import COORDINATES
from ingest.spark.checkpoints import checkpoint, checkpoint_scope
from ingest.tuning import DEFAULT_TUNING, Tuning

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
"""Topic partitions: for more of them whole files are read rather than pages."""


@dataclass(frozen=True)
class _Offsets:
    """The lowest and the highest offset of some events of a topic partition."""

    topic: str
    partition: int
    lowest: int
    highest: int

    def may_be_in(self, file: DataFile) -> bool:
        """Returns False if the file's statistics exclude that it holds one of these offsets."""
        ranges = ((self.topic, self.topic), (self.partition, self.partition), (self.lowest, self.highest))
        bounds = map(file.bounds, COORDINATES)
        return all(b is None or (b[0] <= high and low <= b[1]) for b, (low, high) in zip(bounds, ranges, strict=True))

    @property
    def condition(self) -> Column:
        """Returns the condition of the events in the range."""
        in_partition = (F.col("topic") == self.topic) & (F.col("partition") == self.partition)
        return in_partition & F.col("offset").between(self.lowest, self.highest)


class Quarantine:
    """The quarantine of one pipeline, in the lakehouse's table of all pipelines."""

    def __init__(self, spark: SparkSession, path: str, pipeline: str, tuning: Tuning = DEFAULT_TUNING) -> None:
        self._table = delta_table.Table(spark, path, tuning)
        self._pipeline = pipeline
        # Tables are merged in parallel; two first appends would both create the table.
        self._commit_lock = threading.Lock()
        self._has_grown = False

    def rows(self) -> DataFrame:
        """Returns the events of this pipeline."""
        return self._of_pipeline(self._table.rows(_SCHEMA))

    def add(self, events: DataFrame, waiting: bool = False) -> None:
        """Adds events: bronze rows with `table`, `code` and `reason`. Skips those whose coordinates are there already.
        `waiting`: they are added only because their table is set aside."""
        rows = events.withColumn("pipeline", F.lit(self._pipeline)).select(*_SCHEMA.names)
        with self._commit_lock:
            retry_on_conflict()(self._append_new, rows, waiting)
            self._has_grown = True

    def remove(self, events: DataFrame) -> int:
        """Removes the events at these `COORDINATES`. Returns the number of rewritten files."""
        return self._remove(events, COORDINATES)

    def release(self, table: str, after: int, through_batch: int) -> int:
        """Removes the events of the capture batches `after` < batch ≤ `through_batch` that waited because their
        table was set aside. Returns the number of rewritten files."""
        waiting = (F.col("table") == table) & (F.col("code") == SET_ASIDE)
        inside = (F.col(BATCH) > after) & (F.col(BATCH) <= through_batch)
        return self._remove(self.rows().where(waiting & inside), [*COORDINATES, "code"])

    def _remove(self, events: DataFrame, on: Sequence[str]) -> int:
        removed = events.select(*on).withColumn("pipeline", F.lit(self._pipeline))
        return row_rewrites.remove_rows(self._table, removed, ["pipeline", *on], _laid_out)

    def compact(self) -> bool:
        """Compacts small files if events were added since the last call and that is due. Returns True if it was due."""
        if not self._has_grown:
            return False
        self._has_grown = False
        files_per_size = self._table.tuning.append_only_files_per_size
        files = compaction.files_due(self._table.files().values(), files_per_size=files_per_size)
        return compaction.compact(self._table, files, lambda due: _laid_out(self._table.rows_in(due), 1))

    def _append_new(self, rows: DataFrame, waiting: bool) -> None:
        with checkpoint_scope():
            # Computed once: their ranges of offsets are needed before they are written.
            self._table.commit(self._new_events(checkpoint(rows), waiting), properties=_STATISTICS)

    def _new_events(self, events: DataFrame, waiting: bool) -> DataFrame:
        """Returns the events whose coordinates are not in quarantine."""
        if not self._table.exists():
            return events
        if self._table.property(next(iter(_STATISTICS))) is None:
            self._table.set_properties(_STATISTICS)  # An older table: its new files get statistics.
        self._table.version()  # Another process may have added the same events.
        ranges = _offsets_of(events)
        files = [f for f in self._table.files().values() if any(r.may_be_in(f) for r in ranges)]
        if not files:
            return events
        known = self._of_pipeline(self._table.rows_in(files))
        if not waiting:
            # An event is added in its own right, even if it is there because it waited for its table.
            known = known.where(F.col("code") != SET_ASIDE)
        if len(ranges) <= _RANGES_IN_A_FILTER:
            known = known.where(reduce(lambda one, other: one | other, (r.condition for r in ranges)))
        return events.join(known.select(*COORDINATES), COORDINATES, "left_anti").select(*_SCHEMA.names)

    def _of_pipeline(self, rows: DataFrame) -> DataFrame:
        return rows.where(F.col("pipeline") == self._pipeline)


def _offsets_of(events: DataFrame) -> Sequence[_Offsets]:
    """Returns the range of offsets of each topic partition of `events`."""
    ends = F.min("offset").alias("lowest"), F.max("offset").alias("highest")
    found = events.groupBy("topic", "partition").agg(*ends).collect()  # a row per topic partition
    return [_Offsets(r["topic"], r["partition"], r["lowest"], r["highest"]) for r in found]


def _laid_out(rows: DataFrame, files: int) -> DataFrame:
    """Returns rows in the order of their coordinates, so that a page of a file has a small range of them."""
    order = ["pipeline", *COORDINATES]
    return (rows.repartitionByRange(files, *order) if files > 1 else rows.coalesce(1)).sortWithinPartitions(*order)
