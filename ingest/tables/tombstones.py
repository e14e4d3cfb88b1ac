"""Tombstones beside a silver table: what is remembered of deleted keys, so that a late event can't revive one.

Rows are appended, and go again once the gc horizon has passed them; of several for one key the highest position
counts. The empty surrogate stands for the whole table: a truncate. The horizon is a property of the table.
"""

from __future__ import annotations

import json

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.changelog.change import POSITION_COLUMN
from ingest.changelog.merge import SURROGATE
from ingest.changelog.position import literal
from ingest.tables import delta_log, emptying, folding, page_index

_HORIZON = "ingest.gcHorizon"


class Tombstones:
    """The tombstones of one silver table."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._table = delta_log.Table(spark, path)

    def exists(self) -> bool:
        """Whether anything of this table was ever deleted."""
        return self._table.exists()

    def ask_again(self) -> None:
        """Whatever anybody has buried by now is seen from here on."""
        if self._table.exists():
            self._table.version()

    def rows(self) -> DataFrame:
        """`_key` and highest `_position` of all. There must be one."""
        return _newest(self._table.rows())

    def matching(self, states: DataFrame) -> DataFrame:
        """`_key` and highest `_position` of the tombstones whose key is in `states`. There must be one."""
        return _newest(page_index.matching(self._table, [SURROGATE], states))

    def bury(self, graves: DataFrame) -> None:
        """Appends `_key` and `_position` of deletes."""
        self._append(graves.select(SURROGATE, POSITION_COLUMN).coalesce(1).sortWithinPartitions(SURROGATE))
        files = folding.due(self._table.files().values())
        if files:
            self._table.fold(files, _newest(self._table.rows_in(files)).coalesce(1).sortWithinPartitions(SURROGATE))

    def bury_table(self, at: DataFrame) -> None:
        """Appends a truncate: `at` holds its `_position`."""
        self._append(at.select(_whole_table().alias(SURROGATE), POSITION_COLUMN))

    def truncated_at(self) -> tuple[int, ...] | None:
        """The position of the last truncate, as plain numbers."""
        if not self._table.exists():
            return None
        marks = self._table.rows().where(F.col(SURROGATE) == _whole_table())
        row = marks.agg(F.max(POSITION_COLUMN).alias("at")).first()
        return None if row is None or row["at"] is None else tuple(row["at"])

    def count(self, below: tuple[int, ...] | None = None) -> int:
        """How many keys are remembered; with `below`, those of them that were deleted before that position."""
        if not self._table.exists():
            return 0
        keys = _newest(self._table.rows().where(F.col(SURROGATE) != _whole_table()))
        return keys.count() if below is None else keys.where(F.col(POSITION_COLUMN) < literal(below)).count()

    def horizon(self) -> tuple[int, ...] | None:
        """The position below which tombstones have been forgotten."""
        told = self._table.property(_HORIZON)
        return None if told is None else tuple(json.loads(told))

    def forget(self, below: tuple[int, ...]) -> None:
        """Moves the horizon up to `below`, then takes away what stands under it. There must be a table."""
        known = self.horizon()
        if known is None or below > known:
            self._table.set_property(_HORIZON, json.dumps(below))
        self._table.delete((F.col(SURROGATE) != _whole_table()) & (F.col(POSITION_COLUMN) < literal(below)))

    def forget_these(self, graves: DataFrame) -> int:
        """Takes away these tombstones (`_key` and `_position`), and older ones of their keys: from then on a fence has
        to know them. How many files were written anew for it."""

        def laid_out(rows: DataFrame, files: int) -> DataFrame:
            return rows.coalesce(files).sortWithinPartitions(SURROGATE)

        newest = graves.select(SURROGATE, F.col(POSITION_COLUMN).alias("_upto"))
        rows = self._table.rows().join(F.broadcast(newest), SURROGATE).where(F.col(POSITION_COLUMN) <= F.col("_upto"))
        gone = rows.select(SURROGATE, POSITION_COLUMN).distinct().localCheckpoint()
        return emptying.without(self._table, gone, [SURROGATE, POSITION_COLUMN], laid_out)

    def _append(self, rows: DataFrame) -> None:
        self._table.commit(rows, new=delta_log.NO_STATISTICS)


def _newest(rows: DataFrame) -> DataFrame:
    """One tombstone a key."""
    return rows.groupBy(SURROGATE).agg(F.max(POSITION_COLUMN).alias(POSITION_COLUMN))


def _whole_table() -> Column:
    return F.unhex(F.lit(""))
