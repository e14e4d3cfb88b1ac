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
from ingest.changelog.position import POSITION

_NTH = "_nth"
_ITSELF, _TOPIC, *_PLACE = (f"_compared_{n}" for n in range(2 + len(POSITION)))
"""Of a change that can't be applied, what tells it from all others. Of each, while many are shared out and sorted: the
topic of its event, and the fields of its position, which tell the rest of where that lies."""


def compacted(changes: DataFrame, key: Sequence[str], parts: int | None = None) -> DataFrame:
    """Changes → the one of the highest position per key. What can't be applied is no change of its key and stays
    as it is, each for itself. They come out shared out and sorted by key: what joins by it needs no more of that.
    `parts`: into how many where they are many; None: they are few."""
    told = changes.withColumn(_ITSELF, _itself())
    if parts is None:
        # Each of these is the first of its own anyway. Said so, Spark numbers all: to go by the first ones alone, as
        # it does otherwise, takes longer to plan than it saves.
        first = (F.col(_NTH) == 1) | F.col(_ITSELF).isNotNull()
        return told.withColumn(_NTH, _newest_first(tuple(key), (POSITION_COLUMN,))).where(first).drop(_NTH, _ITSELF)
    # Now, or Spark would look for the first ones in what isn't shared out yet too.
    spread = told.withColumns(_flat()).drop(POSITION_COLUMN, EVENT_ID).repartition(parts, *map(quoted, key))
    newest = spread.withColumn(_NTH, _newest_first(tuple(key), tuple(_PLACE))).where(F.col(_NTH) == 1)
    return newest.withColumns(_whole()).select(*map(quoted, changes.columns))


@cache
def _itself() -> Column:
    return F.when(F.col(CODE).isNotNull(), F.col(EVENT_ID))


@cache
def _flat() -> dict[str, Column]:
    """As numbers positions are a third shorter, and are compared with less work."""
    fields = {name: F.col(POSITION_COLUMN)[field] for name, field in zip(_PLACE, POSITION.names, strict=True)}
    return {_TOPIC: F.col(EVENT_ID)["topic"]} | fields


@cache
def _whole() -> dict[str, Column]:
    """What `_flat` was made of."""
    at = {field: F.col(name).alias(field) for name, field in zip(_PLACE, POSITION.names, strict=True)}
    event = F.struct(F.col(_TOPIC).alias("topic"), at["partition"], at["offset"])
    return {POSITION_COLUMN: F.struct(*at.values()), EVENT_ID: event}


@lru_cache(maxsize=512)
def _newest_first(key: tuple[str, ...], places: tuple[str, ...]) -> Column:
    """The number of a change among those of its key. Kept: writing it down takes longer than to compact few."""
    order = [F.col(column).desc() for column in places]
    return F.row_number().over(Window.partitionBy(*map(quoted, key), _ITSELF).orderBy(*order))
