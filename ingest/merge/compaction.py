"""Compacts a batch of whole-row changes to one state per key: the change, image or delete, of the highest position.

A maximum depends neither on order nor on repetition nor on batching:

    compact(a ∪ b) = compact(compact(a) ∪ compact(b))
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ingest.changelog.change import CODE, EVENT_ID, POSITION_COLUMN, quoted
from ingest.changelog.position import POSITION

_NTH = "_ingest_nth"
_REFUSED_ID, _TOPIC, *_POSITION_FIELDS = (f"_ingest_compared_{n}" for n in range(2 + len(POSITION)))
"""Temporary columns: the event ID of a change that can't be applied (else null); and for the shuffle of a large batch
the topic and the fields of `_position`, from which `_ingest_event` is restored."""


def compacted(changes: DataFrame, key: Sequence[str], partitions: int | None = None) -> DataFrame:
    """Returns the change of the highest position per key, with the columns of `changes`. Changes with a `_ingest_code`
    can't be applied and are all kept.

    The result is partitioned and sorted by key, so a join by the key needs no further exchange. `partitions`: number of
    shuffle partitions of a large batch; None for a small one.
    """
    identified = changes.withColumn(_REFUSED_ID, _refused_id())
    if partitions is None:
        # The second condition implies the first. It keeps Spark from planning a group limit below the window,
        # which costs a small batch more than it saves.
        first = (F.col(_NTH) == 1) | F.col(_REFUSED_ID).isNotNull()
        return (
            identified.withColumn(_NTH, _newest_first(tuple(key), (POSITION_COLUMN,)))
            .where(first)
            .drop(_NTH, _REFUSED_ID)
        )
    # An explicit repartition: for its own exchange Spark would plan a group limit before the shuffle too.
    shuffled = (
        identified.withColumns(_flattened()).drop(POSITION_COLUMN, EVENT_ID).repartition(partitions, *map(quoted, key))
    )
    newest = shuffled.withColumn(_NTH, _newest_first(tuple(key), tuple(_POSITION_FIELDS))).where(F.col(_NTH) == 1)
    return newest.withColumns(_restored()).select(*map(quoted, changes.columns))


@cache
def _refused_id() -> Column:
    return F.when(F.col(CODE).isNotNull(), F.col(EVENT_ID))


@cache
def _flattened() -> dict[str, Column]:
    """Returns the fields of `_position` and the event's topic as columns: a third smaller in the shuffle than structs,
    and cheaper to compare."""
    fields = {name: F.col(POSITION_COLUMN)[field] for name, field in zip(_POSITION_FIELDS, POSITION.names, strict=True)}
    return {_TOPIC: F.col(EVENT_ID)["topic"]} | fields


@cache
def _restored() -> dict[str, Column]:
    """Returns `_position` and `_ingest_event`, restored from the columns of `_flattened`."""
    at = {field: F.col(name).alias(field) for name, field in zip(_POSITION_FIELDS, POSITION.names, strict=True)}
    event = F.struct(F.col(_TOPIC).alias("topic"), at["partition"], at["offset"])
    return {POSITION_COLUMN: F.struct(*at.values()), EVENT_ID: event}


@lru_cache(maxsize=512)
def _newest_first(key: tuple[str, ...], places: tuple[str, ...]) -> Column:
    """Returns the number of a change within its key, 1 for the highest position. `places`: columns of the position.
    Cached, since building the column takes longer than a small batch."""
    order = [F.col(column).desc() for column in places]
    return F.row_number().over(Window.partitionBy(*map(quoted, key), _REFUSED_ID).orderBy(*order))
