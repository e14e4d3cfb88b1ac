"""Places null tombstones, which have no position and, in a topic of several tables, no table: both are those of the
preceding change of their key in their partition, never of the following one.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ingest.changelog.envelope import CHANGES, TOMBSTONE
from ingest.changelog.origin import ORIGIN
from ingest.changelog.position import is_unplaced_read, right_above, tombstone_position
from ingest.changelog.record_keys import RECORD_KEY, record_key

_SAME_KEY = ["topic", "partition", RECORD_KEY]


def tombstones_with_predecessors(events: DataFrame) -> DataFrame:
    """Returns the null tombstones of `EVENT` rows, with `_before`: table, position, op and origin of the preceding
    change; null if these rows don't include it."""
    changed = F.col("op").isin(*CHANGES)
    earlier = Window.partitionBy(*_SAME_KEY).orderBy("offset").rowsBetween(Window.unboundedPreceding, -1)
    before = F.last(
        F.when(changed, F.struct(F.col("source_table").alias("table"), "position", "op", ORIGIN)), ignorenulls=True
    )
    relevant = events.where(F.col("key").isNotNull() & (changed | (F.col("op") == TOMBSTONE)))
    keyed = relevant.withColumn(RECORD_KEY, record_key(F.col("key")))
    return keyed.withColumn("_before", before.over(earlier)).where(F.col("op") == TOMBSTONE).drop(RECORD_KEY)


def with_predecessors_from(history: DataFrame, orphans: DataFrame) -> DataFrame:
    """Returns tombstones without a predecessor, with `_before` from earlier `history`; null if it has none."""
    columns = [*orphans.columns]
    orphans = orphans.withColumn(RECORD_KEY, record_key(F.col("key")))
    changes = history.where(F.col("op").isin(*CHANGES)).select(
        "topic",
        "partition",
        record_key(F.col("key")).alias(RECORD_KEY),
        F.col("offset").alias("_offset"),
        F.struct(F.col("source_table").alias("table"), "position", "op", ORIGIN).alias("_found"),
    )
    # Filter by key first: few events of the history have one of these keys, and only those need a sort.
    changes = changes.join(F.broadcast(orphans.select(*_SAME_KEY).distinct()), _SAME_KEY, "left_semi")
    joined = orphans.drop("_before").join(changes, _SAME_KEY, "left")
    before, unplaced = F.col("_offset") < F.col("offset"), is_unplaced_read(F.col("_found.position"))
    nearest = [
        _nearest(before & condition).alias(name)
        for name, condition in (("_placed", ~unplaced), ("_unplaced", unplaced))
    ]
    rest = [c for c in columns if c not in ("topic", "partition", "offset", "_before")]
    first = [F.first(c).alias(c) for c in rest]
    found = joined.groupBy("topic", "partition", "offset").agg(*first, *nearest)
    return found.withColumn("_before", _found()).select(*columns)


def _nearest(condition: Column) -> Column:
    """Returns the last of the changes for which `condition` is true, with its offset."""
    return F.max_by(F.when(condition, F.struct("_offset", "_found")), F.when(condition, F.col("_offset")))


def _found() -> Column:
    """Returns the change before a tombstone. An unplaced read is right above the placed change before it."""
    placed_change, unplaced = F.col("_placed._found"), F.col("_unplaced._found")
    raised = F.struct(
        unplaced["table"].alias("table"),
        right_above(placed_change["position"]).alias("position"),
        unplaced["op"].alias("op"),
        unplaced[ORIGIN].alias(ORIGIN),
    )
    later = F.col("_unplaced._offset") > F.col("_placed._offset")
    return F.when(later, raised).otherwise(F.coalesce(placed_change, unplaced))


def placed_tombstones(tombstones: DataFrame, table_of_topic: Column) -> DataFrame:
    """Returns tombstones with `source_table`, origin and `position` of `_before`, which is dropped. `table_of_topic`:
    the table of one without `_before`."""
    named = F.coalesce(F.col("_before.table"), table_of_topic)
    return (
        tombstones.withColumn("source_table", named)
        .withColumn(ORIGIN, F.coalesce(F.col(f"_before.{ORIGIN}"), ORIGIN))
        .withColumn("position", tombstone_position(F.col("_before.position"), F.col("position")))
        .drop("_before")
    )
