"""Reconciles a batch of changes with what a table stores of their keys; the result is what has to be written.

- `whole_rows`: every image is whole, so one position per row decides.
- `partial_rows`: some image is partial, or some stored row has columns older than itself; each column has a position.
  On whole rows it gives the same states as `whole_rows`.
- `keyless`: the table has no key, so rows are matched by content and counted.
- `formerly_keyed`: the same, where events may still carry a key that the table had.
"""

from __future__ import annotations

from ingest.batches.decoding import BatchChanges
from ingest.changelog.image_reader import ImageChoice
from ingest.merge.table_schema import TableSchema
from ingest.reconcile.changeset import Changeset, TableState, Truncation, table_state
from ingest.reconcile.formerly_keyed import FormerKeys, reconcile_formerly_keyed
from ingest.reconcile.keyless import reconcile_keyless
from ingest.reconcile.partial_rows import reconcile_partial_rows
from ingest.reconcile.whole_rows import reconcile_whole_rows

__all__ = ["Changeset", "FormerKeys", "TableState", "Truncation", "reconcile", "table_state"]


def reconcile(
    changes: BatchChanges,
    table_schema: TableSchema,
    stored: TableState,
    truncation: Truncation,
    event_count: int,
    key_changes: bool = False,
    former: FormerKeys | None = None,
) -> Changeset:
    """Returns what the changes do to the table. Reads silver, pending rows and tombstones of the batch's keys; writes
    nothing.

    `event_count`: number of events that the changes come from. `key_changes`: some delete names the key to which its
    row moves. `former`: the keys that a table without one has had."""
    if former is not None:
        return reconcile_formerly_keyed(changes, table_schema, stored, truncation, former)
    if not table_schema.key:
        return reconcile_keyless(changes, table_schema, stored, truncation)
    if not key_changes and not (truncation.is_new and _has_column_versions(stored)):
        changeset = reconcile_whole_rows(changes, table_schema, stored, truncation, event_count)
        if changeset is not None:
            return changeset
    return reconcile_partial_rows(changes(ImageChoice.AFTER_OR_BEFORE), table_schema, stored, truncation, key_changes)


def _has_column_versions(stored: TableState) -> bool:
    """Returns whether any stored row has columns older than itself, of which a truncate may remove some."""
    return any(
        table.exists() and not table.rows_with_column_versions().isEmpty() for table in (stored.silver, stored.pending)
    )
