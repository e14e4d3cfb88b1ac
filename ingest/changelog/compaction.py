"""Log compaction: a batch of changes → one state per key.

Whole images make it short: per key the change with the highest position wins, whole, a delete like any other.
The highest of a set doesn't depend on the order in which it was seen, nor on how often, nor on how it was cut:

    compact(a ∪ b) = compact(compact(a) ∪ compact(b))
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest.changelog.change import CODE, EVENT_ID, POSITION_COLUMN, quoted


def compacted(changes: DataFrame, key: Sequence[str]) -> DataFrame:
    """Changes → the one of the highest position per key. What can't be applied is no change of its key and stays
    as it is, each for itself."""
    by, newest, columns = _newest(tuple(key), tuple(c for c in changes.columns if c not in key))
    return changes.groupBy(*by).agg(newest).select(*columns)


@lru_cache(maxsize=512)
def _newest(key: tuple[str, ...], rest: tuple[str, ...]) -> tuple[tuple[Column, ...], Column, tuple[Column, ...]]:
    """By what changes are grouped, the last one of a group, and its columns. Kept: writing them down takes longer than
    to compact a small batch."""
    keys = tuple(quoted(c) for c in key)
    refused = F.when(F.col(CODE).isNotNull(), F.col(EVENT_ID)).alias("_refused")
    newest = F.max_by(F.struct(*(quoted(c) for c in rest)), F.col(POSITION_COLUMN)).alias("_newest")
    return (*keys, refused), newest, (*keys, *(quoted(f"_newest.{c}", c) for c in rest))
