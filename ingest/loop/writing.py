"""Commits a changeset to the tables of one source table, and removes rows for events that concern a whole table:
truncates, snapshots that have ended, and resyncs.

The order makes a crash in between harmless, because the same batch heals it when it is merged again: first tombstones
and new pending rows, then silver, then the removal of pending rows that are complete.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.batches.table_batch import TableBatch
from ingest.changelog.change import POSITION_COLUMN
from ingest.changelog.position import position_literal, right_before_snapshot
from ingest.errors import Contended
from ingest.evolution.definition import Place
from ingest.lakehouse.row_changes import RowChanges
from ingest.lakehouse.tombstones import EmptiedAt
from ingest.merge.actions import ACTION, DELETE
from ingest.merge.table_schema import TableSchema
from ingest.reconcile import Changeset, TableState, Truncation


def commit_changeset(
    changeset: Changeset,
    table_schema: TableSchema,
    stored: TableState,
    user_metadata: Mapping[str, Any],
    quarantine: Callable[[DataFrame], None],
) -> bool:
    """Writes the changeset. Returns whether small files were compacted at the end. `user_metadata`: of the commits.
    `quarantine`: takes the changes that can't be applied."""
    pending = changeset.pending
    if not table_schema.key:
        if stored.pending_commit is None:
            _write_debts(pending, table_schema, stored, user_metadata)
        pending = None
    if changeset.tombstones is not None:
        stored.tombstones.write(changeset.tombstones, is_small=changeset.is_small)
    if changeset.refused is not None:
        quarantine(changeset.refused)
    if pending is not None and pending.actions - {DELETE}:
        waiting = pending.states.where(F.col(ACTION) != DELETE)
        stored.pending.apply(replace(pending, states=waiting), table_schema, user_metadata)
    if changeset.silver is None:
        commit_nothing(table_schema, stored, user_metadata)
    else:
        stored.silver.apply(changeset.silver, table_schema, user_metadata)
    if pending is not None and DELETE in pending.actions:
        stored.pending.remove(pending.states.where(F.col(ACTION) == DELETE), table_schema, user_metadata)
    if changeset.removed_pending is not None:
        stored.pending.remove_located(changeset.removed_pending, user_metadata)
    return _compact(stored, table_schema)


def _write_debts(
    pending: RowChanges | None, table_schema: TableSchema, stored: TableState, user_metadata: Mapping[str, Any]
) -> None:
    """Writes the debts of a keyless table. Raises Contended, also where nothing changes, if another run has committed
    there since the snapshot was pinned: the changeset would follow from what that run has left."""
    if pending is None:
        stored.pending.require_pinned_snapshot()
    else:
        stored.pending.apply(pending, table_schema, user_metadata)


def commit_nothing(table_schema: TableSchema, stored: TableState, user_metadata: Mapping[str, Any]) -> None:
    """Commits `user_metadata` to silver, without rows, for a batch that changes nothing there."""
    if not stored.silver.exists():
        stored.silver.create(table_schema)
    stored.silver.commit_without_rows(user_metadata)


def _compact(stored: TableState, table_schema: TableSchema) -> bool:
    """Compacts the small files of the first table that has enough of them: silver shows the batch already, and the next
    one waits. Returns whether there was any."""
    return any(table.compact(table_schema) for table in stored.tables) or stored.tombstones.compact()


def require_same_columns(stored: TableState, table_schema: TableSchema) -> None:
    """Raises Contended where silver has other columns than the catalog: another writer has changed the table and not
    recorded it yet."""
    if stored.silver.exists() and not stored.silver.has(table_schema):
        raise Contended(
            f"table {table_schema.table} has other columns than its catalog entry: a rebuild is running, or died",
            "run the same command again; continue a rebuild that died with: ingest backfill PIPELINE --rebuild",
        )


class EmptiedTables:
    """Knows the positions at which tables were last emptied."""

    def __init__(self, spark: SparkSession, whole_snapshots: bool) -> None:
        """`whole_snapshots`: a snapshot reads every row, so rows that it lacks are gone."""
        self._spark = spark
        self._whole_snapshots = whole_snapshots
        self._known: dict[str, EmptiedAt] = {}

    def forget(self, table: str) -> None:
        """Lets the next batch read the table's positions again, since another writer has changed the table."""
        self._known.pop(table, None)

    def truncation(self, batch: TableBatch, stored: TableState, begin: Place | None = None) -> Truncation:
        """Records the truncates and resyncs of the batch, removes the rows below a truncate, and returns what is gone.
        To be called before the batch is reconciled. `begin`: the begin of the table's relation; what lies below it
        belonged to another one."""
        if batch.table not in self._known:
            self._known[batch.table] = stored.tombstones.emptied_at()
        truncated = self._truncated(batch, stored)
        if begin is not None and (truncated.position is None or truncated.position < begin):
            truncated = replace(truncated, position=begin)
        return self._resynced(batch, stored, truncated)

    def remove_gone(self, batch: TableBatch, stored: TableState, truncation: Truncation) -> None:
        """Removes the rows that are gone by a resync of the batch. To be called once the batch is committed: until then
        its reads have not replaced the rows that they confirm."""
        if batch.is_resynced and truncation.resynced is not None and stored.silver.exists():
            stored.silver.truncate(position_literal(truncation.resynced))

    def _truncated(self, batch: TableBatch, stored: TableState) -> Truncation:
        """Removes the rows below the table's last truncate, or below a snapshot that has ended: it has read every row.
        Returns where the table is truncated."""
        known = self._known[batch.table]
        truncates = [g.last_position for g in batch.groups if g.kind == "t"]
        snapshots = [right_before_snapshot(g.snapshot) for g in batch.groups if g.snapshot is not None]
        latest = max(truncates + (snapshots if self._whole_snapshots else []), default=None)
        if latest is None:
            return Truncation(known.truncate)
        is_new = known.truncate is None or latest > known.truncate
        if is_new:
            stored.tombstones.write_truncate(self._at(latest))
            self._known[batch.table] = replace(known, truncate=latest)
        last = max(latest, known.truncate or latest)
        for part in (stored.silver, stored.pending):
            if part.exists():
                part.truncate(position_literal(last))
        return Truncation(last, is_new, int(is_new and latest in truncates))

    def _resynced(self, batch: TableBatch, stored: TableState, truncation: Truncation) -> Truncation:
        """Returns `truncation` with the highest floor of the table's resyncs."""
        known = self._known[batch.table]
        if not batch.is_resynced:
            return replace(truncation, resynced=known.resync)
        floor = batch.resync_floor()
        is_new = known.resync is None or floor > known.resync
        if is_new:
            stored.tombstones.write_resync(self._at(floor))
            self._known[batch.table] = replace(known, resync=floor)
        return replace(truncation, resynced=max(floor, known.resync or floor), applied=truncation.applied + int(is_new))

    def _at(self, position: tuple[int, ...]) -> DataFrame:
        return self._spark.range(1).select(position_literal(position).alias(POSITION_COLUMN))
