"""Null tombstones carry no position and, in a topic with several tables, no table: both are those of the change
of the same key before it in its partition, never of the one that follows.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ingest.changelog.envelope import CHANGES, TOMBSTONE
from ingest.changelog.origin import ORIGIN
from ingest.changelog.position import above, is_adrift, right_after

SAME_KEY = ["topic", "partition", "key"]


def predecessors(events: DataFrame) -> DataFrame:
    """`EVENT` rows → their tombstones alone, with `_before` (table, position and op of the change before; null where
    these rows don't hold it)."""
    changed = F.col("op").isin(*CHANGES)
    earlier = Window.partitionBy(*SAME_KEY).orderBy("offset").rowsBetween(Window.unboundedPreceding, -1)
    before = F.last(
        F.when(changed, F.struct(F.col("source_table").alias("table"), "position", "op", ORIGIN)), ignorenulls=True
    )
    relevant = events.where(F.col("key").isNotNull() & (changed | (F.col("op") == TOMBSTONE)))
    return relevant.withColumn("_before", before.over(earlier)).where(F.col("op") == TOMBSTONE)


def searched_in(history: DataFrame, orphans: DataFrame) -> DataFrame:
    """Orphaned tombstones with `_before` out of earlier history, where it is there."""
    changes = history.where(F.col("op").isin(*CHANGES)).select(
        *SAME_KEY,
        F.col("offset").alias("_offset"),
        F.struct(F.col("source_table").alias("table"), "position", "op", ORIGIN).alias("_found"),
    )
    # Of all that there was few have their key: the others needn't be sorted.
    changes = changes.join(F.broadcast(orphans.select(*SAME_KEY).distinct()), SAME_KEY, "left_semi")
    own = [*orphans.columns]
    joined = orphans.drop("_before").join(changes, SAME_KEY, "left")
    before, adrift = F.col("_offset") < F.col("offset"), is_adrift(F.col("_found.position"))
    nearest = [_nearest(before & which).alias(name) for name, which in (("_placed", ~adrift), ("_adrift", adrift))]
    rest = [c for c in own if c not in ("topic", "partition", "offset", "_before")]
    first = [F.first(c).alias(c) for c in rest]
    found = joined.groupBy("topic", "partition", "offset").agg(*first, *nearest)
    return found.withColumn("_before", _found()).select(*own)


def _nearest(which: Column) -> Column:
    """Of the changes `which` the last one, with its offset."""
    return F.max_by(F.when(which, F.struct("_offset", "_found")), F.when(which, F.col("_offset")))


def _found() -> Column:
    """The change before a tombstone. A read that is adrift stands above the placed change before it."""
    placed, adrift = F.col("_placed._found"), F.col("_adrift._found")
    raised = F.struct(
        adrift["table"].alias("table"),
        above(placed["position"]).alias("position"),
        adrift["op"].alias("op"),
        adrift[ORIGIN].alias(ORIGIN),
    )
    later = F.col("_adrift._offset") > F.col("_placed._offset")
    return F.when(later, raised).otherwise(F.coalesce(placed, adrift))


def placed(tombstones: DataFrame, table_of_topic: Column) -> DataFrame:
    """Tombstones with their `source_table` and `position`; `table_of_topic` says whose a lone tombstone is."""
    named = F.coalesce(F.col("_before.table"), table_of_topic)
    return (
        tombstones.withColumn("source_table", named)
        .withColumn(ORIGIN, F.coalesce(F.col(f"_before.{ORIGIN}"), ORIGIN))
        .withColumn("position", right_after(F.col("_before.position"), F.col("position")))
        .drop("_before")
    )
