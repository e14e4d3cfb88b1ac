"""Removes events of keyless tables that were delivered before. Only their place in the log tells."""

from __future__ import annotations

import logging

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.batches.table_batch import TableBatch
from ingest.changelog.position import source_position
from ingest.merge.keyless import without_duplicate_deliveries

_PAST = "_past"
_log = logging.getLogger(__name__)


class DuplicateDeliveries:
    """Finds repeated deliveries. Reads history only where a batch starts at or before the highest position of its
    table."""

    def __init__(self) -> None:
        self._highest: dict[str, tuple[int, ...]] = {}
        self._partitions: dict[str, set[tuple[str, int]]] = {}

    def without_duplicates(self, batch: TableBatch) -> DataFrame:
        """Returns the batch's events of its table, without those that were delivered before, by this or an earlier
        reader."""
        self._log_several_partitions(batch)
        events = batch.events.where(batch.changed)
        if batch.earlier_readers is not None:
            events = batch.earlier_readers.undelivered(events)
        lowest = min((g.first_position for g in batch.groups), default=())
        highest = self._highest_before(batch)
        self._highest[batch.table] = max((highest, *(g.last_position for g in batch.groups)))
        if lowest[:4] > highest[:4]:
            return without_duplicate_deliveries(events)
        place_column = source_position(F.col("position")).alias("_place")
        past = _history(batch).select(*events.columns, place_column)
        seen_again = past.join(F.broadcast(events.select(place_column).distinct()), "_place", "left_semi")
        same_places = (
            seen_again
            if batch.earlier_readers is None
            else seen_again.unionByName(events.withColumn("_place", place_column))
        )
        begin = same_places.groupBy("topic", "partition").agg(F.min("offset").alias("_from"))
        from_there = past.join(F.broadcast(begin), ["topic", "partition"]).where(F.col("offset") >= F.col("_from"))
        known = from_there.select(*events.columns, F.lit(True).alias(_PAST))
        all_events = known.unionByName(events.withColumn(_PAST, F.lit(False)))
        return without_duplicate_deliveries(all_events, _PAST).where(~F.col(_PAST)).drop(_PAST).localCheckpoint()

    def forget(self, table: str) -> None:
        """Forgets the table's highest position, because another run has merged events of it."""
        self._highest.pop(table, None)

    def _log_several_partitions(self, batch: TableBatch) -> None:
        """Logs, once, that events of a table lie in several partitions of one topic."""
        known = self._partitions.setdefault(batch.table, set())
        seen = known.union(*(group.partitions for group in batch.groups))
        is_new = len(seen) > len({topic for topic, _ in seen}) and len(known) == len({topic for topic, _ in known})
        self._partitions[batch.table] = seen
        if is_new:
            _log.warning(
                "%s has no key, and its events lie in several partitions: an event that its connector sends again to "
                "another partition counts as one more row → give its topic one partition, or declare a key (tables: "
                "{%s: {primary_key: […]}})",
                *(batch.table, batch.table),
            )

    def _highest_before(self, batch: TableBatch) -> tuple[int, ...]:
        """Returns the highest position before this batch; read once per process."""
        if batch.table not in self._highest:
            highest = batch.highest_before()
            if batch.earlier_readers is not None:
                past = batch.earlier_readers.delivered.where(batch.changed)
                row = past.agg(F.max("position").alias("highest")).first()
                highest = max(highest, tuple(row["highest"] or ()) if row else ())
            self._highest[batch.table] = highest
        return self._highest[batch.table]


def _history(batch: TableBatch) -> DataFrame:
    """Returns the events of the batch's table that were merged before it."""
    past = batch.history().where(batch.changed)
    if batch.earlier_readers is None:
        return past
    return batch.earlier_readers.undelivered(past).unionByName(batch.earlier_readers.delivered.where(batch.changed))
