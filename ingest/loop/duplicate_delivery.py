"""Which events of a table without a key were delivered before: nothing but their place in the log tells."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.batches.table_batch import TableBatch
from ingest.changelog.position import source_position
from ingest.merge.keyless import without_duplicate_deliveries

_PAST = "_past"


class DuplicateDeliveries:
    """Looks into history only where a batch goes back behind what its table has seen."""

    def __init__(self) -> None:
        self._highest: dict[str, tuple[int, ...]] = {}

    def once(self, batch: TableBatch) -> DataFrame:
        """The batch's events of its table, each counted once over all batches, and over all readers of them."""
        events = batch.events.where(batch.changed)
        if batch.elsewhere is not None:
            events = batch.elsewhere.new(events)
        lowest = min((g.first_position for g in batch.groups), default=())
        highest = self._seen(batch)
        self._highest[batch.table] = max((highest, *(g.last_position for g in batch.groups)))
        if lowest[:4] > highest[:4]:
            return without_duplicate_deliveries(events)
        here = source_position(F.col("position")).alias("_place")
        past = _history(batch).select(*events.columns, here)
        again = past.join(F.broadcast(events.select(here).distinct()), "_place", "left_semi")
        near = again if batch.elsewhere is None else again.unionByName(events.withColumn("_place", here))
        begin = near.groupBy("topic", "partition").agg(F.min("offset").alias("_from"))
        back = past.join(F.broadcast(begin), ["topic", "partition"]).where(F.col("offset") >= F.col("_from"))
        known = back.select(*events.columns, F.lit(True).alias(_PAST))
        everything = known.unionByName(events.withColumn(_PAST, F.lit(False)))
        return without_duplicate_deliveries(everything, _PAST).where(~F.col(_PAST)).drop(_PAST).localCheckpoint()

    def forget(self, table: str) -> None:
        """Another run has merged events of the table: the next batch looks up how far it has come."""
        self._highest.pop(table, None)

    def _seen(self, batch: TableBatch) -> tuple[int, ...]:
        """Returns the highest position before this batch; asked once per process."""
        if batch.table not in self._highest:
            highest = batch.highest_before()
            if batch.elsewhere is not None:
                past = batch.elsewhere.past.where(batch.changed)
                row = past.agg(F.max("position").alias("highest")).first()
                highest = max(highest, tuple(row["highest"] or ()) if row else ())
            self._highest[batch.table] = highest
        return self._highest[batch.table]


def _history(batch: TableBatch) -> DataFrame:
    """The events of the batch's table that were merged before it."""
    past = batch.history().where(batch.changed)
    if batch.elsewhere is None:
        return past
    return batch.elsewhere.new(past).unionByName(batch.elsewhere.past.where(batch.changed))
