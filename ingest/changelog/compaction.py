"""Log compaction: a batch of changes → one state per key.

Whole images make it short: per key the change with the highest position wins, whole, a delete like any other.
The highest of a set doesn't depend on the order in which it was seen, nor on how often, nor on how it was cut:

    compact(a ∪ b) = compact(compact(a) ∪ compact(b))
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

DELETED = "_deleted"
POSITION_COLUMN = "_position"


def compacted(changes: DataFrame, key: Sequence[str]) -> DataFrame:
    """Changes (`key` columns, `_position`, anything else) → the row of the highest position per key."""
    rest = [c for c in changes.columns if c not in key]
    newest = F.max_by(F.struct(*(quoted(c) for c in rest)), F.col(POSITION_COLUMN)).alias("_newest")
    grouped = changes.groupBy(*(quoted(c) for c in key)).agg(newest)
    return grouped.select(*(quoted(c) for c in key), *(quoted(f"_newest.{c}", c) for c in rest))


def quoted(path: str, name: str | None = None) -> Column:
    """A column whose name may hold dots and quotes. With `name`, `path` is `struct.name`."""
    if name is None:
        return F.col("`" + path.replace("`", "``") + "`")
    struct = path[: -len(name) - 1]
    return F.col(struct).getField(name).alias(name)
