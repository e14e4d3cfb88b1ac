"""Joins by the columns of a key. In a key of several columns null is a value that equals null."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.changelog.change import quoted

_LEFT_ALONE = ("left_semi", "left_anti")


def joined_by_key(left: DataFrame, right: DataFrame, key: Sequence[str], how: str = "inner") -> DataFrame:
    """Returns `left.join(right, key, how)`, where null equals null if the key has several columns."""
    if len(key) == 1:
        return left.join(right, list(key), how)
    others = {k: f"_ingest_other_{n}" for n, k in enumerate(key)}
    rest = [c for c in right.columns if c not in others]
    named = right.select(*(quoted(k).alias(other) for k, other in others.items()), *map(quoted, rest))
    same = reduce(lambda one, other: one & other, (quoted(k).eqNullSafe(F.col(other)) for k, other in others.items()))
    both = left.join(named, same, how)
    if how in _LEFT_ALONE:
        return both
    values = {k: quoted(k) for k in others}
    if how == "full_outer":
        values = {k: F.coalesce(quoted(k), F.col(other)) for k, other in others.items()}
    left_rest = [c for c in left.columns if c not in others]
    return both.select(*(value.alias(k) for k, value in values.items()), *map(quoted, (*left_rest, *rest)))
