"""Places reads of incremental snapshots without a source position: right after the preceding change of their key in
their partition. Debezium drops a read if its key changed meanwhile, so a read is as new as its place in the topic.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ingest.changelog.envelope import CHANGES
from ingest.changelog.position import is_unplaced_read, read_position
from ingest.changelog.record_keys import RECORD_KEY, record_key

_SAME_ROW = ["topic", "partition", "source_table", RECORD_KEY]
_BEFORE = "_before"


def with_predecessors(events: DataFrame) -> DataFrame:
    """Returns `EVENT` rows with `_before`: for an unplaced read the position of the preceding change of its key that
    has one; null if these rows don't include it."""
    is_unplaced = is_unplaced_read(F.col("position"))
    earlier = Window.partitionBy(*_SAME_ROW).orderBy("offset").rowsBetween(Window.unboundedPreceding, -1)
    changed = F.col("op").isin(*CHANGES) & ~is_unplaced
    before = F.last(F.when(changed, F.col("position")), ignorenulls=True).over(earlier)
    keyed = events.withColumn(RECORD_KEY, record_key(F.col("key")))
    return keyed.withColumn(_BEFORE, F.when(is_unplaced & F.col("key").isNotNull(), before))


def lacks_predecessor() -> Column:
    """Returns the filter of unplaced reads without `_before`."""
    return is_unplaced_read(F.col("position")) & F.col(_BEFORE).isNull()


def with_predecessors_from(history: DataFrame, events: DataFrame) -> DataFrame:
    """Returns `events` (from `with_predecessors`), with a missing `_before` filled from `history`, all of which is
    older than they are."""
    lacking = events.where(lacks_predecessor()).select(*_SAME_ROW).distinct()
    changes = history.where(F.col("op").isin(*CHANGES) & ~is_unplaced_read(F.col("position")))
    changes = changes.withColumn(RECORD_KEY, record_key(F.col("key")))
    # Filter by key first: few events of the history have one of these keys.
    relevant = changes.join(F.broadcast(lacking), _SAME_ROW, "left_semi")
    newest = relevant.groupBy(*_SAME_ROW).agg(F.max_by("position", "offset").alias("_found"))
    joined = events.join(F.broadcast(newest), _SAME_ROW, "left")
    found = F.coalesce(F.col(_BEFORE), F.when(lacks_predecessor(), F.col("_found")))
    return joined.withColumn(_BEFORE, found).select(*events.columns)


def placed_reads(events: DataFrame) -> DataFrame:
    """Returns `EVENT` rows where an unplaced read has the position right after `_before`. Without one it stays
    unplaced."""
    moved = F.when(is_unplaced_read(F.col("position")), read_position(F.col(_BEFORE), F.col("position")))
    return events.withColumn("position", F.coalesce(moved, "position")).drop(_BEFORE, RECORD_KEY)
