"""Finds stored rows and values that can't be revised to what is known of a table now: only its events tell them."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest.changelog.change import COLUMN_POSITIONS, POSITION_COLUMN, column_position
from ingest.changelog.position import position_literal
from ingest.evolution.life import Lives
from ingest.evolution.revisions import LostRange, needs_refold
from ingest.reconcile.changeset import TableState


def refold_reason(before: Lives, after: Lives, stored: TableState) -> str:
    """Returns why the table has to be folded from its events again; empty if all that is stored can be revised from
    `before` to `after`."""
    refold = needs_refold(before, after)
    if refold is None or not stored.silver.exists():
        return ""
    return refold.reason if any(_holds(stored, lost) for lost in refold.ranges) else ""


def _holds(stored: TableState, lost: LostRange) -> bool:
    """Returns True if any row or value is stored that lies in a range, or was."""
    if lost.is_gone:
        return True
    frames = [table.rows() for table in (stored.silver, stored.pending) if table.exists()]
    is_held = any(not rows.where(_is_within(rows, lost)).isEmpty() for rows in frames)
    if is_held or not lost.is_of_keys or not stored.tombstones.exists():
        return is_held
    deleted = stored.tombstones.keys()
    return not deleted.where(_is_between(F.col(POSITION_COLUMN), lost)).isEmpty()


def _is_within(rows: DataFrame, lost: LostRange) -> Column:
    if lost.if_partial:
        return F.col(COLUMN_POSITIONS).isNotNull()
    if lost.stored is not None:
        return _is_between(column_position(lost.stored), lost)
    return _is_between(F.col(POSITION_COLUMN), lost)


def _is_between(at: Column, lost: LostRange) -> Column:
    found = at.isNotNull()
    if lost.begin is not None:
        found &= at >= position_literal(lost.begin)
    if lost.end is not None:
        found &= at < position_literal(lost.end)
    return F.coalesce(found, F.lit(False))
