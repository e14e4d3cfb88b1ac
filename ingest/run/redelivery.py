"""Which events of a table without a key were delivered before: nothing but their place in the log tells."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.changelog.bag import delivered_once
from ingest.changelog.position import place
from ingest.run.table_batch import TableBatch

_PAST = "_past"


class Redelivery:
    """Looks into history only where a batch goes back behind what its table has seen."""

    def __init__(self) -> None:
        self._highest: dict[str, tuple[int, ...]] = {}

    def once(self, batch: TableBatch) -> DataFrame:
        """The batch's events of its table, each counted once over all batches."""
        events = batch.events.where(batch.changed)
        lowest = min((g.first_position for g in batch.groups), default=())
        highest = self._seen(batch)
        self._highest[batch.table] = max((highest, *(g.last_position for g in batch.groups)))
        if lowest[:4] > highest[:4]:
            return delivered_once(events)
        here = place(F.col("position")).alias("_place")
        past = batch.history().where(batch.changed).select(*events.columns, here)
        again = past.join(F.broadcast(events.select(here).distinct()), "_place", "left_semi")
        begin = again.groupBy("topic", "partition").agg(F.min("offset").alias("_from"))
        back = past.join(F.broadcast(begin), ["topic", "partition"]).where(F.col("offset") >= F.col("_from"))
        known = back.select(*events.columns, F.lit(True).alias(_PAST))
        everything = known.unionByName(events.withColumn(_PAST, F.lit(False)))
        return delivered_once(everything).where(~F.col(_PAST)).drop(_PAST).localCheckpoint()

    def _seen(self, batch: TableBatch) -> tuple[int, ...]:
        """Returns the highest position before this batch; asked once per process."""
        if batch.table not in self._highest:
            self._highest[batch.table] = batch.highest_before()
        return self._highest[batch.table]
