"""Reads of incremental snapshots that tell no position: each stands right after the change of the same key before it in
its partition. Debezium leaves out a read whose key changed while it was read, so what a read says is as new as its
place in the topic.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ingest.changelog.envelope import CHANGES
from ingest.changelog.position import is_adrift, right_after_change

_SAME_ROW = ["topic", "partition", "source_table", "key"]
_BEFORE = "_before"


def with_predecessors(events: DataFrame) -> DataFrame:
    """`EVENT` rows with `_before`: of a read that is adrift, the position of the placed change before it; null where
    these rows don't hold it."""
    adrift = is_adrift(F.col("position"))
    earlier = Window.partitionBy(*_SAME_ROW).orderBy("offset").rowsBetween(Window.unboundedPreceding, -1)
    changed = F.col("op").isin(*CHANGES) & ~adrift
    before = F.last(F.when(changed, F.col("position")), ignorenulls=True).over(earlier)
    return events.withColumn(_BEFORE, F.when(adrift & F.col("key").isNotNull(), before))


def lacks_predecessor() -> Column:
    """Selects the reads whose place is still unknown."""
    return is_adrift(F.col("position")) & F.col(_BEFORE).isNull()


def searched_in(history: DataFrame, events: DataFrame) -> DataFrame:
    """`with_predecessors` of the events, where a read lacks one that of `history`, which is all older."""
    lacking = events.where(lacks_predecessor()).select(*_SAME_ROW).distinct()
    changes = history.where(F.col("op").isin(*CHANGES) & ~is_adrift(F.col("position")))
    # Of all that there was few have their key.
    mine = changes.join(F.broadcast(lacking), _SAME_ROW, "left_semi")
    newest = mine.groupBy(*_SAME_ROW).agg(F.max_by("position", "offset").alias("_found"))
    joined = events.join(F.broadcast(newest), _SAME_ROW, "left")
    found = F.coalesce(F.col(_BEFORE), F.when(lacks_predecessor(), F.col("_found")))
    return joined.withColumn(_BEFORE, found).select(*events.columns)


def standing(events: DataFrame) -> DataFrame:
    """`EVENT` rows, each read at the position after its predecessor. One without any stays adrift."""
    at = F.when(is_adrift(F.col("position")), right_after_change(F.col(_BEFORE), F.col("position")))
    return events.withColumn("position", F.coalesce(at, "position")).drop(_BEFORE)
