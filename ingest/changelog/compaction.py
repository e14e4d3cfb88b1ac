"""Log compaction: a batch of changes → one state per key.

Whole images make it short: per key the change with the highest position wins, whole, a delete like any other.
The highest of a set doesn't depend on the order in which it was seen, nor on how often, nor on how it was cut:

    compact(a ∪ b) = compact(compact(a) ∪ compact(b))
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ingest.changelog.change import CODE, EVENT_ID, POSITION_COLUMN, quoted

_NTH = "_nth"
_LEADING = ("epoch", "major")
"""The fields of a position that mostly decide: numbers are compared with less work than structs of them."""
_ITSELF, *_FIRST = (f"_compared_{n}" for n in range(1 + len(_LEADING)))
"""Of a change that can't be applied, what tells it from all others; and those fields."""


def compacted(changes: DataFrame, key: Sequence[str], parts: int | None = None) -> DataFrame:
    """Changes → the one of the highest position per key. What can't be applied is no change of its key and stays
    as it is, each for itself. They come out shared out and sorted by key: what joins by it needs no more of that.
    `parts`: into how many where they are many; None: they are few."""
    told = changes.withColumns(_compared())
    first = F.col(_NTH) == 1
    if parts is None:
        # Each of these is the first of its own anyway. Said so, Spark numbers all: to go by the first ones alone, as
        # it does otherwise, takes longer to plan than it saves.
        first = first | F.col(_ITSELF).isNotNull()
    else:
        # Now, or Spark would look for the first ones in what isn't shared out yet too.
        told = told.repartition(parts, *map(quoted, key))
    return told.withColumn(_NTH, _newest_first(tuple(key))).where(first).drop(_NTH, *_compared())


@cache
def _compared() -> dict[str, Column]:
    """What changes are compared by, beside key and position."""
    itself = F.when(F.col(CODE).isNotNull(), F.col(EVENT_ID))
    return {_ITSELF: itself} | {c: F.col(POSITION_COLUMN)[name] for c, name in zip(_FIRST, _LEADING, strict=True)}


@lru_cache(maxsize=512)
def _newest_first(key: tuple[str, ...]) -> Column:
    """The number of a change among those of its key. Kept: writing it down takes longer than to compact few."""
    order = [F.col(column).desc() for column in (*_FIRST, POSITION_COLUMN)]
    return F.row_number().over(Window.partitionBy(*map(quoted, key), _ITSELF).orderBy(*order))
