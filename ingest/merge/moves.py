"""An update that moves a row to another key is two changes: the new key's image, and the delete of the old key."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest.changelog.change import CODE, COLUMN_POSITIONS, DELETED, MOVED, NEW_KEY, quoted
from ingest.changelog.projection import Projection


def with_moves(flat: DataFrame, key: Sequence[str]) -> DataFrame:
    """`flat`: changes, and `_old_<n>`, the columns of the key before, null where the event doesn't tell them."""
    moves, columns = _moving(tuple(flat.columns), tuple(key))
    return columns.of(flat if moves is None else flat.select("*", moves))


@lru_cache(maxsize=512)
def _moving(flat: tuple[str, ...], key: tuple[str, ...]) -> tuple[Column | None, Projection]:
    """What makes two rows of one that moves, if any can; and the columns of a change."""
    old = [c for c in (f"_old_{n}" for n in range(len(key))) if c in flat]
    rest = [c for c in flat if c not in old]
    if not old or len(old) != len(key):
        return None, Projection((*map(quoted, rest), F.lit(False).alias(MOVED)))
    target = F.struct(*(quoted(k).alias(k) for k in key))
    # In a key of several columns a null is a value.
    told = F.coalesce(*(F.col(old_key).cast("string") for old_key in old)).isNotNull()
    differs = F.lit(False)
    before = dict(zip(key, old, strict=True))
    for name, old_key in before.items():
        differs |= ~F.col(old_key).eqNullSafe(quoted(name))
    moves = F.col(CODE).isNull() & told & differs
    copies = F.when(moves, F.array(F.lit(False), F.lit(True))).otherwise(F.array(F.lit(False)))
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
    return F.explode(copies).alias(MOVED), Projection((*columns, F.col(MOVED)))
