"""Tombstones beside a silver table: what is remembered of deleted keys, so that a late event can't revive one.

Rows are appended, and go again once the gc horizon has passed them; of several for one key the highest position
counts. Of a row that moved to another key they remember where to: each such move is a row of its own. The empty
surrogate stands for the whole table: a truncate. The horizon is a property of the table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.changelog.change import MOVED_TO, POSITION_COLUMN, quoted
from ingest.changelog.position import position_literal
from ingest.delta import compaction, delta_table
from ingest.delta.compaction import BackgroundCompaction
from ingest.lakehouse import page_index, row_rewrites
from ingest.merge.actions import TOMBSTONE_KEY
from ingest.spark.prepared import asked

_HORIZON = "ingest.gcHorizon"
_STORED = {TOMBSTONE_KEY: "_key", MOVED_TO: "_moved_to"}
"""In-flight column → its name in the table, which has no columns of a user's table beside its own."""
_KEY, _MOVED_TO = _STORED.values()
MOVED_AT = "_ingest_moved_at"
"""Where the row of a key last moved to another one; null if it never did."""


class Tombstones:
    """The tombstones of one silver table."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._table = delta_table.Table(spark, path)
        self._compaction = BackgroundCompaction(self._table)

    def exists(self) -> bool:
        """Whether anything of this table was ever deleted."""
        return self._table.exists()

    def refresh(self) -> None:
        """Whatever anybody has buried by now is seen from here on."""
        if self._table.exists():
            self._table.version()

    def rows(self) -> DataFrame:
        """`_key` and highest `_position` of all. There must be one."""
        return _newest(_in_flight(self._table.rows()))

    def size(self) -> int:
        return self._table.size()

    def all(self) -> DataFrame:
        """`_key`, highest `_position` and `MOVED_AT` of all. There must be one."""
        return newest(_in_flight(self._table.rows_in(self._table.files().values())))

    def matching(self, states: DataFrame, key: Sequence[str] = ()) -> DataFrame:
        """The highest `_position` and `MOVED_AT` of the tombstones whose `_key` is in `states`, by the columns `key`
        that the states have, or else by `_key`. There must be one."""
        found, few = self._found(states, key)
        highest = _newest(found, _moved_at(), by=key or [TOMBSTONE_KEY])
        return F.broadcast(highest) if few else highest

    def moves(self, states: DataFrame) -> DataFrame:
        """`_key`, `_position` and `_moved_to`: the moves of rows away from the keys in `states`. There must be a
        tombstone."""
        found, _ = self._found(states)
        return _kept(found.where(F.col(MOVED_TO).isNotNull()))

    def near(self, states: DataFrame) -> DataFrame:
        """Tombstones among which are all whose `_key` is in `states`, of which there are few. There must be a table."""
        return page_index.near(self._table, [TOMBSTONE_KEY], states, _as_written, stored=_STORED)

    def _found(self, states: DataFrame, named: Sequence[str] = ()) -> tuple[DataFrame, bool]:
        """Those whose `_key` is in `states`, with the columns `named` of these; and whether they are known to be
        few."""
        found, few = page_index.matching(self._table, [TOMBSTONE_KEY], states, named=named, stored=_STORED)
        # In one partition nothing needs a shuffle.
        return (found.coalesce(1) if few else found), few

    def write(self, tombstones: DataFrame, after: Callable[[], object] | None = None, few: bool = False) -> None:
        """Appends `_key` and `_position` of deletes, one of a key, or with `_moved_to`, where they have it, one of each
        that it moved to beside. `after`: what has to be done before they count, once their file is written. `few`:
        there are few, in one part."""
        self._append(asked(_new, (), tombstones, few=few), after, few)

    def compact(self) -> bool:
        """Writes small files together, where it is time to, without what nobody asks for any more. Whether it was."""
        files = compaction.files_due(self._table.files().values()) if self.exists() else []
        return self._compaction.compact(files, lambda due: _new(_kept(_in_flight(self._table.rows_in(due)))))

    def write_truncate(self, at: DataFrame) -> None:
        """Appends a truncate: `at` holds its `_position`."""
        self._append(at.select(_whole_table().alias(_KEY), POSITION_COLUMN, _nowhere().alias(_MOVED_TO)))

    def truncated_at(self) -> tuple[int, ...] | None:
        """The position of the last truncate, as plain numbers."""
        if not self._table.exists():
            return None
        marks = self._table.rows().where(F.col(_KEY) == _whole_table())
        row = marks.agg(F.max(POSITION_COLUMN).alias("at")).first()
        return None if row is None or row["at"] is None else tuple(row["at"])

    def count(self, below: tuple[int, ...] | None = None) -> int:
        """How many keys are remembered; with `below`, those of them that were deleted before that position."""
        if not self._table.exists():
            return 0
        keys = _newest(_in_flight(self._table.rows().where(F.col(_KEY) != _whole_table())))
        return keys.count() if below is None else keys.where(F.col(POSITION_COLUMN) < position_literal(below)).count()

    def horizon(self) -> tuple[int, ...] | None:
        """The position below which tombstones have been forgotten; None where none have been, or there are none."""
        told = self._table.property(_HORIZON) if self._table.exists() else None
        return None if told is None else tuple(json.loads(told))

    def forget(self, below: tuple[int, ...]) -> None:
        """Moves the horizon up to `below`, then takes away what stands under it. There must be a table."""
        known = self.horizon()
        if known is None or below > known:
            self._table.set_property(_HORIZON, json.dumps(below))
        self._table.delete((F.col(_KEY) != _whole_table()) & (F.col(POSITION_COLUMN) < position_literal(below)))

    def remove(self, tombstones: DataFrame) -> int:
        """Takes away these tombstones (`_key` and `_position`), older ones of their keys, and that rows moved to these
        keys: from then on a fence has to know them. How many files were written anew for it."""
        asked_for = F.broadcast(
            tombstones.select(F.col(TOMBSTONE_KEY).alias(_KEY), F.col(POSITION_COLUMN).alias("_upto"))
        )
        rows = self._table.rows().join(asked_for, _KEY).where(F.col(POSITION_COLUMN) <= F.col("_upto"))
        gone = rows.select(_KEY, POSITION_COLUMN).distinct().localCheckpoint()
        files = row_rewrites.remove_rows(self._table, gone, [_KEY, POSITION_COLUMN], _sorted)
        led = self._table.rows().select(_MOVED_TO, F.unhex(F.sha2(_MOVED_TO, 256)).alias(_KEY))
        led = led.join(asked_for, _KEY).select(_MOVED_TO).distinct().localCheckpoint()
        return files + row_rewrites.update_rows(self._table, led, [_MOVED_TO], {_MOVED_TO: _nowhere()}, _sorted)

    def _append(self, rows: DataFrame, before_commit: Callable[[], object] | None = None, few: bool = False) -> None:
        self._table.commit(rows, properties=delta_table.NO_STATISTICS, before_commit=before_commit, is_small=few)


def _newest(rows: DataFrame, *more: Column, by: Sequence[str] = (TOMBSTONE_KEY,)) -> DataFrame:
    """One tombstone a key."""
    return rows.groupBy(*map(quoted, by)).agg(F.max(POSITION_COLUMN).alias(POSITION_COLUMN), *more)


def newest(rows: DataFrame) -> DataFrame:
    """Of tombstones one a key: `_key`, highest `_position` and `MOVED_AT`."""
    return _newest(rows, _moved_at())


def _new(tombstones: DataFrame) -> DataFrame:
    """Tombstones as they are written."""
    moved_to = F.col(MOVED_TO) if MOVED_TO in tombstones.columns else _nowhere()
    rows = tombstones.select(F.col(TOMBSTONE_KEY).alias(_KEY), POSITION_COLUMN, moved_to.alias(_MOVED_TO))
    return _sorted(rows, 1)


def _as_written(rows: DataFrame) -> DataFrame:
    return _in_flight(rows).select(TOMBSTONE_KEY, POSITION_COLUMN, MOVED_TO)


def _kept(rows: DataFrame) -> DataFrame:
    """The last tombstone of each key, and its last move to each other one."""
    return rows.groupBy(TOMBSTONE_KEY, MOVED_TO).agg(F.max(POSITION_COLUMN).alias(POSITION_COLUMN))


def _in_flight(rows: DataFrame) -> DataFrame:
    """Returns rows of the table with the in-flight names of its columns."""
    return rows.withColumnsRenamed({stored: name for name, stored in _STORED.items()})


def _sorted(rows: DataFrame, files: int) -> DataFrame:
    return rows.select(_KEY, POSITION_COLUMN, _MOVED_TO).coalesce(files).sortWithinPartitions(_KEY)


def _moved_at() -> Column:
    return F.max(F.when(F.col(MOVED_TO).isNotNull(), F.col(POSITION_COLUMN))).alias(MOVED_AT)


def _nowhere() -> Column:
    return F.lit(None).cast("string")


def _whole_table() -> Column:
    return F.unhex(F.lit(""))
