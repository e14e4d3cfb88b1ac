"""A verdict as it is written to the tables of one source table.

In an order in which a crash in between is healed by the same batch when it comes again: tombstones and rows that begin
to wait, then silver, then rows that wait no more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.lakehouse.row_changes import RowChanges
from ingest.merge.actions import ACTION, DELETE
from ingest.merge.images import TableSchema
from ingest.reconcile import Changeset, TableState
from ingest.spark.background import in_background


def write(
    judged: Changeset,
    table_schema: TableSchema,
    stored: TableState,
    told: Mapping[str, Any],
    set_aside: Callable[[DataFrame], None],
) -> bool:
    """`told`: what the commits say of themselves. `set_aside`: takes the changes that can't be applied. Whether small
    files were written together at the end.

    Raises Contradicted where the verdict doesn't hold; silver is as it was then."""
    pending = judged.pending
    if not table_schema.key:
        if stored.owed_before is None:
            _write_debts(pending, table_schema, stored, told)
        pending = None
    # Who waits for another comes after it: so many threads there are, the first of them waits for nobody.
    with (
        in_background(judged.proof or _nothing) as proving,
        in_background(partial(_write_tombstones, stored, judged, proving.result)) as burying,
    ):
        if judged.refused is not None:
            set_aside(judged.refused)
        if pending is not None and pending.actions - {DELETE}:
            waiting = pending.states.where(F.col(ACTION) != DELETE)
            stored.pending.apply(replace(pending, states=waiting), table_schema, told)
        if judged.silver is not None:
            stored.silver.apply(judged.silver, table_schema, told, after=burying.result)
    if judged.silver is None:
        burying.result()
        note(table_schema, stored, told)
    if pending is not None and DELETE in pending.actions:
        stored.pending.remove(pending.states.where(F.col(ACTION) == DELETE), table_schema, told)
    return _fold(stored, table_schema)


def _write_debts(
    pending: RowChanges | None, table_schema: TableSchema, stored: TableState, told: Mapping[str, Any]
) -> None:
    """Writes what a table without a key owes. Raises Contended, also where nothing changes, if another run has written
    there since the batch began: the verdict would follow from what that run has left."""
    if pending is None:
        stored.pending.require_pinned_snapshot()
    else:
        stored.pending.apply(pending, table_schema, told)


def note(table_schema: TableSchema, stored: TableState, told: Mapping[str, Any]) -> None:
    """A batch that does nothing to silver says so there."""
    if not stored.silver.exists():
        stored.silver.create(table_schema)
    stored.silver.commit_without_rows(told)


def _nothing() -> None:
    """What holds needs no proof."""


def _write_tombstones(stored: TableState, judged: Changeset, proven: Callable[[], object]) -> None:
    """Tombstones that are there already would not count as news where the batch is judged again."""
    if judged.tombstones is None:
        proven()
    else:
        stored.tombstones.write(judged.tombstones, after=proven, few=judged.few)


def _fold(stored: TableState, table_schema: TableSchema) -> bool:
    """Now that silver shows the batch. Each table may have gathered small files: those of one are enough for a batch,
    as the next one waits for it."""
    return any(kept.compact(table_schema) for kept in stored.tables) or stored.tombstones.compact()
