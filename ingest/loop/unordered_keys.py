"""Finds keys whose changes lie in two partitions, where the source gives no position: nothing tells which change is
newer."""

from __future__ import annotations

import logging
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.batches.decoding import BatchChanges
from ingest.batches.group_stats import CHANGE
from ingest.batches.table_batch import TableBatch
from ingest.changelog.change import CODE, POSITION_COLUMN
from ingest.changelog.image_reader import ImageChoice
from ingest.errors import StopRequested
from ingest.merge.actions import TOMBSTONE_KEY, tombstone_key
from ingest.merge.table_schema import TableSchema
from ingest.reconcile import TableState

_log = logging.getLogger(__name__)
_REMEDY = (
    "let the producer send each key to one partition, or name a column that orders the changes "
    "(tables: {…: {sequence: …}})"
)


class UnorderedKeys:
    """Checks tables that have several partitions and no positions, each until such a key is found."""

    def __init__(self, stops: bool) -> None:
        self._stops = stops
        self._partitions: dict[str, set[int]] = {}
        self._warned: set[str] = set()

    def check(self, batch: TableBatch, table_schema: TableSchema, changes: BatchChanges, stored: TableState) -> None:
        """Checks a batch before it is merged. Raises StopRequested, or warns once per table."""
        without_positions = [g for g in batch.groups if g.kind == CHANGE and not g.has_positions]
        if not without_positions or not table_schema.key or batch.table in self._warned:
            return
        if batch.table not in self._partitions:
            self._partitions[batch.table] = _partitions_of(stored)
        seen = self._partitions[batch.table]
        seen.update(partition for group in without_positions for _, partition in group.partitions)
        if len(seen) == 1:
            return
        count = _keys_in_several_partitions(changes(ImageChoice.AFTER), table_schema, stored).count()
        if not count:
            return
        problem = (
            f"table {batch.table}: {count} keys of a batch have changes in two partitions, and the source gives no "
            "position: which of them is newer can't be known"
        )
        if self._stops:
            raise StopRequested(problem, _REMEDY + "; or say source: {keys_in_two_partitions: offset}")
        self._warned.add(batch.table)
        _log.warning("%s; the higher offset counts → %s", problem, _REMEDY)


def _partitions_of(stored: TableState) -> set[int]:
    """Returns the partitions that the stored rows came from."""
    if not stored.silver.exists():
        return set()
    partition = F.col(POSITION_COLUMN)["partition"].alias("partition")
    return {row["partition"] for row in stored.silver.rows().select(partition).distinct().collect()}


def _keys_in_several_partitions(changes: DataFrame, table_schema: TableSchema, stored: TableState) -> DataFrame:
    """Returns the keys of the changes whose states, new and stored, come from more than one partition."""
    partition = F.col(POSITION_COLUMN)["partition"].alias("_ingest_partition")
    key_hash = tombstone_key(table_schema.key, table_schema.key_types).alias(TOMBSTONE_KEY)
    keyed = changes.where(F.col(CODE).isNull())
    states = [keyed.select(key_hash, partition)]
    if stored.silver.exists():
        states.append(stored.silver.matching(keyed, table_schema.key).select(key_hash, partition))
    if stored.tombstones.exists():
        states.append(stored.tombstones.matching(keyed.select(key_hash)).select(TOMBSTONE_KEY, partition))
    seen = reduce(DataFrame.unionByName, states)
    return (
        seen.groupBy(TOMBSTONE_KEY)
        .agg(F.count_distinct("_ingest_partition").alias("_ingest_count"))
        .where(F.col("_ingest_count") > 1)
    )
