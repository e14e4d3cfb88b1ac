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

from ingest.changelog.change import CODE, POSITION_COLUMN, quoted

_NTH = "_nth"


def compacted(changes: DataFrame, key: Sequence[str], parts: int | None = None) -> DataFrame:
    """Changes → the one of the highest position per key. What can't be applied is no change of its key and stays
    as it is, each for itself. They come out shared out and sorted by key: what joins by it needs no more of that.
    `parts`: into how many, if not as Spark is told to."""
    if parts is not None:
        changes = changes.repartition(parts, *map(quoted, key))
    return changes.withColumn(_NTH, _newest_first(tuple(key))).where(_kept()).drop(_NTH)


@lru_cache(maxsize=512)
def _newest_first(key: tuple[str, ...]) -> Column:
    """The number of a change among those of its key. Kept: writing it down takes longer than to compact a small batch.

    One that can't be applied is numbered behind all others."""
    by = Window.partitionBy(*map(quoted, key)).orderBy(F.col(CODE).isNotNull(), F.col(POSITION_COLUMN).desc())
    return F.row_number().over(by)


@cache
def _kept() -> Column:
    return (F.col(_NTH) == 1) | F.col(CODE).isNotNull()
