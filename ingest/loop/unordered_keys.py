"""Changes of one key in two partitions, where the source gives no position: nothing tells which came later."""

from __future__ import annotations

import logging
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.batches.decoding import Changes
from ingest.batches.group_stats import CHANGE
from ingest.batches.table_batch import TableBatch
from ingest.changelog.change import CODE, POSITION_COLUMN
from ingest.changelog.image_reader import ImageChoice
from ingest.errors import StopRequested
from ingest.merge.actions import TOMBSTONE_KEY, tombstone_key
from ingest.merge.images import TableSchema
from ingest.reconcile import TableState

_log = logging.getLogger(__name__)
_REMEDY = (
    "let the producer send each key to one partition, or name a column that orders the changes "
    "(tables: {…: {sequence: …}})"
)


class UnorderedKeys:
    """Looks for such keys in tables that have several partitions and no positions, until it has found one."""

    def __init__(self, stops: bool) -> None:
        self._stops = stops
        self._partitions: dict[str, set[int]] = {}
        self._said: set[str] = set()

    def check(self, batch: TableBatch, table_schema: TableSchema, changes: Changes, stored: TableState) -> None:
        """To be asked before the batch is merged. Raises StopRequested, or warns once for each table."""
        unplaced = [g for g in batch.groups if g.kind == CHANGE and not g.placed]
        if not unplaced or not table_schema.key or batch.table in self._said:
            return
        if batch.table not in self._partitions:
            self._partitions[batch.table] = _partitions_of(stored)
        seen = self._partitions[batch.table]
        seen.update(partition for group in unplaced for _, partition in group.partitions)
        if len(seen) == 1:
            return
        count = _in_two_partitions(changes(ImageChoice.AFTER), table_schema, stored).count()
        if not count:
            return
        problem = (
            f"table {batch.table}: {count} keys of a batch have changes in two partitions, and the source gives no "
            "position: which of them is newer can't be known"
        )
        if self._stops:
            raise StopRequested(problem, _REMEDY + "; or say source: {keys_in_two_partitions: offset}")
        self._said.add(batch.table)
        _log.warning("%s; the higher offset counts → %s", problem, _REMEDY)


def _partitions_of(stored: TableState) -> set[int]:
    """Those that the stored rows came from, in an earlier run."""
    if not stored.silver.exists():
        return set()
    partition = F.col(POSITION_COLUMN)["partition"].alias("partition")
    return {row["partition"] for row in stored.silver.rows().select(partition).distinct().collect()}


def _in_two_partitions(changes: DataFrame, table_schema: TableSchema, stored: TableState) -> DataFrame:
    """The keys of the changes whose states, here and stored, come from more than one partition."""
    partition = F.col(POSITION_COLUMN)["partition"].alias("_partition")
    hashed = tombstone_key(list(table_schema.key)).alias(TOMBSTONE_KEY)
    keyed = changes.where(F.col(CODE).isNull())
    states = [keyed.select(hashed, partition)]
    if stored.silver.exists():
        states.append(stored.silver.matching(keyed, table_schema.key).select(hashed, partition))
    if stored.tombstones.exists():
        states.append(stored.tombstones.matching(keyed.select(hashed)).select(TOMBSTONE_KEY, partition))
    seen = reduce(DataFrame.unionByName, states)
    return seen.groupBy(TOMBSTONE_KEY).agg(F.count_distinct("_partition").alias("_count")).where(F.col("_count") > 1)
