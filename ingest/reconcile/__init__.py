"""What a batch of changes does to one table, given what is stored of its keys.

Row by row where every image is whole: one position a row decides (`compaction`, `merge`). Column by column where one
is partial, or a row is stored whose columns have positions of their own (`joining`). Both give the same states. By
content where a table has no key (`bag`).
"""

from __future__ import annotations

from ingest.batches.decoding import Changes
from ingest.changelog.image_reader import ImageChoice
from ingest.merge.images import TableSchema
from ingest.reconcile.changeset import Changeset, DuplicateMismatch, TableState, Truncation, table_state
from ingest.reconcile.keyless import by_content
from ingest.reconcile.partial_rows import by_column
from ingest.reconcile.whole_rows import by_row

__all__ = ["Changeset", "DuplicateMismatch", "TableState", "Truncation", "reconcile", "table_state"]


def reconcile(
    changes: Changes,
    table_schema: TableSchema,
    stored: TableState,
    truncated: Truncation,
    events: int,
    key_changes: bool = False,
    sure: bool = False,
) -> Changeset:
    """Reads silver, pending rows and tombstones of the batch's keys; writes nothing. `key_changes`: some delete names
    the key under which its row goes on. `events`: of so many the changes come. `sure`: so that nothing contradicts
    it."""
    if not table_schema.key:
        return by_content(changes, table_schema, stored, truncated)
    if not key_changes and not (truncated.now and _layered(stored)):
        judged = by_row(changes, table_schema, stored, truncated, events, sure)
        if judged is not None:
            return judged
    return by_column(changes(ImageChoice.AFTER_OR_BEFORE), table_schema, stored, truncated, key_changes)


def _layered(stored: TableState) -> bool:
    """Whether any row stands on columns older than itself, of which a truncate may take some away."""
    return any(
        kept.exists() and not kept.rows_with_column_versions().isEmpty() for kept in (stored.silver, stored.pending)
    )
