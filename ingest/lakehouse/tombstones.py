"""The tombstones of a silver table: the positions of deleted keys, so that a late event can't revive one.

Tombstones are appended, and removed once the gc horizon has passed them; of several for one key the highest position
counts. A move of a row to another key is a tombstone of its own, with the new key. Two tombstone keys stand for the
whole table: `_TRUNCATE` for a truncate, `_RESYNC` for the floor of a resync. The horizon is a property of the table.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.changelog.change import MOVED_TO, POSITION_COLUMN, quoted
from ingest.changelog.position import position_literal
from ingest.delta import compaction, delta_table
from ingest.delta.data_file import DataFile
from ingest.lakehouse import page_index, row_rewrites
from ingest.merge.actions import TOMBSTONE_KEY
from ingest.spark.prepared import run_prepared
from ingest.tuning import DEFAULT_TUNING, Tuning

_HORIZON = "ingest.gcHorizon"
_STORED = {TOMBSTONE_KEY: "_key", MOVED_TO: "_moved_to"}
"""In-flight column → its name in the table, which holds no columns of a user's table."""
_KEY, _MOVED_TO = _STORED.values()
_TRUNCATE, _RESYNC = "", "00"
"""Tombstone keys of the whole table, as hexadecimal digits. That of a row is a SHA-256."""
MOVED_AT = "_ingest_moved_at"
"""Column: the position at which the row of a key last moved to another key; null if it never did."""


@dataclass(frozen=True)
class EmptiedAt:
    """`truncate`: position of a table's last truncate. `resync`: highest floor of its resyncs. None: there was none."""

    truncate: tuple[int, ...] | None = None
    resync: tuple[int, ...] | None = None


class Tombstones:
    """The tombstones of one silver table."""

    def __init__(self, spark: SparkSession, path: str, tuning: Tuning = DEFAULT_TUNING) -> None:
        self._table = delta_table.Table(spark, path, tuning)

    def exists(self) -> bool:
        """Returns True if anything of the silver table was ever deleted."""
        return self._table.exists()

    def refresh(self) -> None:
        """Makes later calls see the tombstones of all commits up to now."""
        if self._table.exists():
            self._table.version()

    def rows(self) -> DataFrame:
        """Returns `TOMBSTONE_KEY` and its highest `_position` of all tombstones. There must be one."""
        return _newest(_in_flight(self._table.rows()))

    def keys(self) -> DataFrame:
        """Returns `TOMBSTONE_KEY` and `_position` of all tombstones of keys, not of the table. There must be one."""
        return _in_flight(self._table.rows().where(~_is_of_table())).select(TOMBSTONE_KEY, POSITION_COLUMN)

    def size(self) -> int:
        return self._table.size()

    def all(self) -> DataFrame:
        """Returns `TOMBSTONE_KEY`, highest `_position` and `MOVED_AT` of all tombstones. There must be one."""
        return newest(_in_flight(self._table.rows_in(self._table.files().values())))

    def matching(self, states: DataFrame, key: Sequence[str] = ()) -> DataFrame:
        """Returns the highest `_position` and `MOVED_AT` of the tombstones whose `TOMBSTONE_KEY` is in `states`, by the
        states' columns `key`, or by `TOMBSTONE_KEY` without them. There must be a tombstone."""
        found, are_few = self._found(states, key)
        highest = _newest(found, _moved_at(), by=key or [TOMBSTONE_KEY])
        return F.broadcast(highest) if are_few else highest

    def moves(self, states: DataFrame) -> DataFrame:
        """Returns `TOMBSTONE_KEY`, `_position` and `MOVED_TO` of the moves of rows away from the keys in `states`.
        There must be a tombstone."""
        found, _ = self._found(states)
        return _newest_per_move(found.where(F.col(MOVED_TO).isNotNull()))

    def near(self, states: DataFrame) -> DataFrame:
        """Returns tombstones, among them all whose `TOMBSTONE_KEY` is in `states`, which are few. The table must
        exist."""
        return page_index.near(self._table, [TOMBSTONE_KEY], states, _as_written, stored=_STORED)

    def _found(self, states: DataFrame, columns: Sequence[str] = ()) -> tuple[DataFrame, bool]:
        """Returns the tombstones whose `TOMBSTONE_KEY` is in `states`, with these columns of the states, and True if
        the states are known to be few."""
        found, are_few = page_index.matching(self._table, [TOMBSTONE_KEY], states, with_columns=columns, stored=_STORED)
        # One partition needs no shuffle.
        return (found.coalesce(1) if are_few else found), are_few

    def write(self, tombstones: DataFrame, is_small: bool = False) -> None:
        """Appends tombstones: `TOMBSTONE_KEY` and `_position`, one for each key, or with `MOVED_TO` one for each new
        key besides. `is_small`: they are few, in one partition."""
        self._append(run_prepared(_new, (), tombstones, is_small=is_small), is_small)

    def compact(self) -> bool:
        """Compacts small files if that is due, without outdated tombstones. Returns True if it was due."""
        files = compaction.files_due(self._table.files().values()) if self.exists() else []

        def layout(due: Sequence[DataFile]) -> DataFrame:
            return _new(_newest_per_move(_in_flight(self._table.rows_in(due))))

        return compaction.compact(self._table, files, layout)

    def write_truncate(self, at: DataFrame) -> None:
        """Appends a truncate. `at`: one row with its `_position`."""
        self._append(at.select(_whole_table(_TRUNCATE).alias(_KEY), POSITION_COLUMN, _nowhere().alias(_MOVED_TO)))

    def write_resync(self, floor: DataFrame) -> None:
        """Appends the floor of a resync. `floor`: one row with its `_position`."""
        self._append(floor.select(_whole_table(_RESYNC).alias(_KEY), POSITION_COLUMN, _nowhere().alias(_MOVED_TO)))

    def emptied_at(self) -> EmptiedAt:
        """Returns the positions of the last truncate and of the highest floor of a resync."""
        if not self._table.exists():
            return EmptiedAt()
        marks = self._table.rows().where(_is_of_table()).groupBy(F.hex(_KEY).alias("key"))
        found = {r["key"]: tuple(r["at"]) for r in marks.agg(F.max(POSITION_COLUMN).alias("at")).collect()}
        return EmptiedAt(found.get(_TRUNCATE), found.get(_RESYNC))

    def count(self, below: tuple[int, ...] | None = None) -> int:
        """Returns the number of deleted keys, or of those deleted before the position `below`."""
        if not self._table.exists():
            return 0
        keys = _newest(_in_flight(self._table.rows().where(~_is_of_table())))
        return keys.count() if below is None else keys.where(F.col(POSITION_COLUMN) < position_literal(below)).count()

    def horizon(self) -> tuple[int, ...] | None:
        """Returns the position below which tombstones have been removed; None if none have."""
        stored = self._table.property(_HORIZON) if self._table.exists() else None
        return None if stored is None else tuple(json.loads(stored))

    def forget(self, below: tuple[int, ...]) -> None:
        """Raises the horizon to `below`, then removes the tombstones below it. The table must exist."""
        known = self.horizon()
        if known is None or below > known:
            self._table.set_property(_HORIZON, json.dumps(below))
        self._table.delete(~_is_of_table() & (F.col(POSITION_COLUMN) < position_literal(below)))

    def remove(self, tombstones: DataFrame) -> int:
        """Removes these tombstones (`TOMBSTONE_KEY` and `_position`), older ones of their keys, and the note that rows
        moved to these keys: from then on suppression has to keep their events away. Returns the number of rewritten
        files."""
        wanted = F.broadcast(
            tombstones.select(F.col(TOMBSTONE_KEY).alias(_KEY), F.col(POSITION_COLUMN).alias("_through"))
        )
        rows = self._table.rows().join(wanted, _KEY).where(F.col(POSITION_COLUMN) <= F.col("_through"))
        removed = rows.select(_KEY, POSITION_COLUMN).distinct().localCheckpoint()
        files = row_rewrites.remove_rows(self._table, removed, [_KEY, POSITION_COLUMN], _sorted)
        moved = self._table.rows().select(_MOVED_TO, F.unhex(F.sha2(_MOVED_TO, 256)).alias(_KEY))
        moved = moved.join(wanted, _KEY).select(_MOVED_TO).distinct().localCheckpoint()
        return files + row_rewrites.update_rows(self._table, moved, [_MOVED_TO], {_MOVED_TO: _nowhere()}, _sorted)

    def _append(self, rows: DataFrame, is_small: bool = False) -> None:
        self._table.commit(rows, properties=delta_table.NO_STATISTICS, is_small=is_small)


def _newest(rows: DataFrame, *more: Column, by: Sequence[str] = (TOMBSTONE_KEY,)) -> DataFrame:
    """Returns the highest position per key, and more aggregates."""
    return rows.groupBy(*map(quoted, by)).agg(F.max(POSITION_COLUMN).alias(POSITION_COLUMN), *more)


def newest(rows: DataFrame) -> DataFrame:
    """Returns one row per key: `TOMBSTONE_KEY`, highest `_position` and `MOVED_AT`."""
    return _newest(rows, _moved_at())


def _new(tombstones: DataFrame) -> DataFrame:
    """Returns tombstones with the table's columns, sorted by key."""
    moved_to = F.col(MOVED_TO) if MOVED_TO in tombstones.columns else _nowhere()
    rows = tombstones.select(F.col(TOMBSTONE_KEY).alias(_KEY), POSITION_COLUMN, moved_to.alias(_MOVED_TO))
    return _sorted(rows, 1)


def _as_written(rows: DataFrame) -> DataFrame:
    return rows.select(TOMBSTONE_KEY, POSITION_COLUMN, MOVED_TO)


def _newest_per_move(rows: DataFrame) -> DataFrame:
    """Returns the newest tombstone of each key, and the newest of its moves to each other key."""
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


def _whole_table(digits: str) -> Column:
    return F.unhex(F.lit(digits))


def _is_of_table() -> Column:
    """Returns whether a tombstone stands for the whole table."""
    return (F.col(_KEY) == _whole_table(_TRUNCATE)) | (F.col(_KEY) == _whole_table(_RESYNC))
