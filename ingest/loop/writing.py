"""Commits a changeset to the tables of one source table.

The order makes a crash in between harmless, because the same batch heals it when it is merged again: first tombstones
and new pending rows, then silver, then the removal of pending rows that are complete.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.lakehouse.row_changes import RowChanges
from ingest.merge.actions import ACTION, DELETE
from ingest.merge.table_schema import TableSchema
from ingest.reconcile import Changeset, TableState


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
