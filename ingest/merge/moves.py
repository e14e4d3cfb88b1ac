"""Splits an update of the key columns into two changes: the image under the new key, and the delete of the old key."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest.changelog.change import CODE, COLUMN_POSITIONS, DELETED, MOVED, NEW_KEY, quoted
from ingest.jvm.projection import Projection


def split_key_updates(changes: DataFrame, key: Sequence[str]) -> DataFrame:
    """Returns changes, two for an update of the key, with `_ingest_moved` (true for the delete of the old key).

    `changes`: with `_ingest_old_<n>`, the key columns of the image before; all null if the event has none.
    """
    moves, columns = _projections(tuple(changes.columns), tuple(key))
    return columns.of(changes if moves is None else changes.select("*", moves))


@lru_cache(maxsize=512)
def _projections(changes: tuple[str, ...], key: tuple[str, ...]) -> tuple[Column | None, Projection]:
    """Returns the `_ingest_moved` column that explodes an update of the key to two rows (None if `changes` lacks the
    old key), and the projection to changes on top of it."""
    old = [c for c in (f"_ingest_old_{n}" for n in range(len(key))) if c in changes]
    rest = [c for c in changes if c not in old]
    if not old or len(old) != len(key):
        return None, Projection((*map(quoted, rest), F.lit(False).alias(MOVED)))
    target = F.struct(*(quoted(k).alias(k) for k in key))
    # In a key of several columns a null is a value.
    has_old_key = F.coalesce(*(F.col(old_key).cast("string") for old_key in old)).isNotNull()
    differs = F.lit(False)
    before = dict(zip(key, old, strict=True))
    for name, old_key in before.items():
        differs |= ~F.col(old_key).eqNullSafe(quoted(name))
    moves = F.col(CODE).isNull() & has_old_key & differs
    moved_flags = F.when(moves, F.array(F.lit(False), F.lit(True))).otherwise(F.array(F.lit(False)))
    columns = (
        F.when(F.col(MOVED), F.col(before[c])).otherwise(quoted(c)).alias(c)
        if c in before
        else (F.col(MOVED) | F.col(DELETED)).alias(c)
        if c == DELETED
        else F.when(~F.col(MOVED), F.col(c)).alias(c)
        if c == COLUMN_POSITIONS
        else F.when(F.col(MOVED), target).otherwise(F.col(c)).alias(c)
        if c == NEW_KEY
        else quoted(c)
        for c in rest
    )
    return F.explode(moved_flags).alias(MOVED), Projection((*columns, F.col(MOVED)))
