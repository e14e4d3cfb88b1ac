"""Decides which images are left of a table whose key has changed, by the keys that its events carry.

A key is unique at the source at any time. So an event that carries the key K with the values k, be it an image or a
delete, makes every image below its position whose columns K equal k obsolete: the row that had k at that time is the
one of the event. Of the images that are left, those with equal values in the key in force are the same row, or rows
whose deletes are still to come; the newest one is shown.

    fact (K, k)  =  highest position of an event that carries K = k
    an image is left  ⇔  no fact that its columns match is above its position

Facts are maxima, and what they make obsolete stays so: the result depends neither on order nor on batching.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ingest.changelog.change import POSITION_COLUMN, quoted
from ingest.merge.actions import TOMBSTONE_KEY, tombstone_key
from ingest.merge.table_schema import KeyTypes

_FACT = "_ingest_fact"


def facts(events: DataFrame, key: Sequence[str], types: KeyTypes = ()) -> DataFrame:
    """Returns `TOMBSTONE_KEY` and highest `_position` of the values of `key` that events carry. `types`: of columns
    whose type has changed."""
    carried = events.select(tombstone_key(key, types).alias(TOMBSTONE_KEY), POSITION_COLUMN)
    return carried.groupBy(TOMBSTONE_KEY).agg(F.max(POSITION_COLUMN).alias(POSITION_COLUMN))


def survivors(candidates: DataFrame, known: Mapping[tuple[str, ...], DataFrame], types: KeyTypes = ()) -> DataFrame:
    """Returns the images among `candidates` that no fact makes obsolete.

    `known`: key → facts of at least the candidates' values (`TOMBSTONE_KEY`, `_position`), of which there may be
    several for one value. `types`: as of `facts`."""
    for key, positions in known.items():
        is_obsolete = F.col(POSITION_COLUMN) < F.col(_FACT)
        candidates = (
            _with_fact(candidates, key, positions, types).where(~F.coalesce(is_obsolete, F.lit(False))).drop(_FACT)
        )
    return candidates


def carriers(
    rows: DataFrame, key: Sequence[str], known: Mapping[tuple[str, ...], DataFrame], types: KeyTypes = ()
) -> DataFrame:
    """Returns the rows whose newest event carried `key`: all but those at whose own position there is a fact of another
    key. `known`: other key → its facts. `types`: as of `facts`."""
    for other, positions in known.items():
        if tuple(other) != tuple(key):
            is_carried = F.col(POSITION_COLUMN) == F.col(_FACT)
            rows = _with_fact(rows, other, positions, types).where(~F.coalesce(is_carried, F.lit(False))).drop(_FACT)
    return rows


def is_newest(key: Sequence[str], required: Sequence[str] = ()) -> Column:
    """Returns true for the row of the highest position among those with its values of `key`, and for every row whose
    key `is_unknown`."""
    same = Window.partitionBy(row_id(key, required)).orderBy(F.col(POSITION_COLUMN).desc())
    return F.row_number().over(same) == 1


def row_id(key: Sequence[str], required: Sequence[str] = ()) -> Column:
    """Returns a hash that rows share if they have the same values of `key`, unless the key `is_unknown`."""
    position = F.unhex(F.sha2(F.to_json(POSITION_COLUMN), 256))
    return F.when(is_unknown(required), position).otherwise(tombstone_key(key)) if required else tombstone_key(key)


def is_unknown(required: Sequence[str]) -> Column:
    """Returns true for a row that has no value in a key column of `required`, those that are NOT NULL at the source:
    the row was last written before the column existed, or under its earlier name."""
    return reduce(lambda one, other: one | other, (quoted(name).isNull() for name in required), F.lit(False))


def _with_fact(rows: DataFrame, key: Sequence[str], positions: DataFrame, types: KeyTypes) -> DataFrame:
    """Returns the rows with `_FACT`, the highest position of the facts of their values of `key`; null without one."""
    highest = positions.groupBy(TOMBSTONE_KEY).agg(F.max(POSITION_COLUMN).alias(_FACT))
    hashed = rows.withColumn(TOMBSTONE_KEY, tombstone_key(key, types))
    return hashed.join(highest, TOMBSTONE_KEY, "left").drop(TOMBSTONE_KEY)
