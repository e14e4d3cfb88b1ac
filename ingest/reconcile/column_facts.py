"""Collects what `merge.partial_rows.join_states` needs: the batch's events, what is stored of their keys, and what is
stored of the keys to which their rows have moved, all in one form (a fact per row)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.change import (
    COLUMN_POSITIONS,
    DELETED,
    EVENT_ID,
    MOVED_TO,
    NEW_KEY,
    POSITION_COLUMN,
    SOURCE_TS,
    quoted,
)
from ingest.changelog.position import POSITION, is_same_source_position, position_literal
from ingest.internal_columns import LOCATION
from ingest.lakehouse.tombstones import MOVED_AT
from ingest.merge.actions import TOMBSTONE_KEY, tombstone_key
from ingest.merge.key_changes import with_columns_of
from ingest.merge.key_join import joined_by_key
from ingest.merge.partial_rows import PENDING_ROW, ROW, TOMBSTONE, stored_columns, without_truncated
from ingest.merge.table_schema import TableSchema
from ingest.reconcile.changeset import TableState, Truncation
from ingest.spark.checkpoints import checkpoint
from ingest.values.render import LOSSLESS_JSON


@dataclass(frozen=True)
class ColumnFacts:
    """Collects the facts of one table's batch."""

    table_schema: TableSchema
    stored: TableState
    truncation: Truncation

    def collect(self, events: DataFrame) -> DataFrame:
        """Returns the changes, and what is stored of their keys and of the keys to which they move rows."""
        facts = events.withColumn(MOVED_AT, F.lit(None).cast(POSITION))
        facts = facts.select(*self._columns, *stored_columns(None, self.table_schema.names))
        keys = facts.select(*self._key).unionByName(self._targets(facts)).distinct()
        return reduce(DataFrame.unionByName, self._stored_facts(keys, facts, self.truncation.is_new), facts)

    def summary(self, facts: DataFrame) -> Row:
        """Returns `names`: the columns that some state lacks; `moves`: some event moves a row; `moved`: the row of some
        key has moved before."""
        names = F.array_distinct(F.flatten(F.collect_set(F.map_keys(COLUMN_POSITIONS))))
        moves, moved = F.bool_or(_is_event() & F.col(NEW_KEY).isNotNull()), F.bool_or(F.col(MOVED_AT).isNotNull())
        summary = facts.agg(names.alias("names"), moves.alias("moves"), moved.alias("moved")).first()
        assert summary is not None
        return summary

    def with_moves_followed(self, facts: DataFrame) -> DataFrame | None:
        """Returns the facts, with the recorded moves of rows that have an event older than their move, and with all
        that is stored of the keys they moved to, move by move. None where there is no such event."""
        key = [quoted(k) for k in self._names]
        at = facts.where(_is_event()).select(*key, POSITION_COLUMN)
        at = at.unionByName(self._targets(facts, POSITION_COLUMN))
        moved = facts.where(F.col(MOVED_AT).isNotNull()).select(*key, MOVED_AT)
        earlier = joined_by_key(at, moved, self._names).where(F.col(POSITION_COLUMN) < F.col(MOVED_AT))
        late = checkpoint(earlier.select(*key).distinct())
        if late.isEmpty():
            return None
        known = facts.select(*key).unionByName(self._targets(facts)).distinct()
        found = [facts]
        while True:
            moves = checkpoint(self._recorded_moves(late, facts))
            new_keys = checkpoint(joined_by_key(self._targets(moves).distinct(), known, self._names, "left_anti"))
            found.append(moves)
            if new_keys.isEmpty():
                return reduce(DataFrame.unionByName, found)
            stored = checkpoint(reduce(DataFrame.unionByName, self._stored_facts(new_keys, facts)))
            found.append(stored)
            known = known.unionByName(new_keys)
            late = stored.where(F.col(MOVED_AT).isNotNull()).select(*key)

    def new_moves(self, facts: DataFrame) -> DataFrame:
        """Returns `TOMBSTONE_KEY`, `_position` and `MOVED_TO` of the events that move a row, without the moves that
        tombstones have recorded already."""
        at = F.col(POSITION_COLUMN)
        new = F.max(F.when(_is_event(), at)).alias(POSITION_COLUMN)
        target = F.to_json(NEW_KEY, LOSSLESS_JSON).alias(MOVED_TO)
        moves = facts.where(F.col(NEW_KEY).isNotNull()).select("*", self._hashed.alias(TOMBSTONE_KEY), target)
        moves = moves.groupBy(TOMBSTONE_KEY, MOVED_TO).agg(
            new, F.max(F.when(~_is_event(), at)).alias("_ingest_recorded_position")
        )
        is_recorded = F.coalesce(
            (at <= F.col("_ingest_recorded_position"))
            | is_same_source_position(at, F.col("_ingest_recorded_position")),
            F.lit(False),
        )
        return moves.where(at.isNotNull() & ~is_recorded).drop("_ingest_recorded_position")

    @property
    def _names(self) -> list[str]:
        return list(self.table_schema.identity)

    @property
    def _hashed(self) -> Column:
        return tombstone_key(self._names, self.table_schema.key_types)

    @property
    def _key(self) -> list[Column]:
        return [quoted(k) for k in self._names]

    @property
    def _columns(self) -> list[Column]:
        more = [DELETED, POSITION_COLUMN, SOURCE_TS, COLUMN_POSITIONS, EVENT_ID, NEW_KEY, MOVED_AT]
        return [quoted(c) for c in (*(c.name for c in self.table_schema.columns), *more)]

    def _targets(self, facts: DataFrame, *more: str) -> DataFrame:
        """Returns the keys to which rows move, with the columns `more`."""
        moves = facts.where(F.col(NEW_KEY).isNotNull())
        return moves.select(*(F.col(NEW_KEY)[k].alias(k) for k in self._names), *more)

    def _recorded_moves(self, keys: DataFrame, facts: DataFrame) -> DataFrame:
        """Returns the moves that tombstones of these keys have recorded, as facts."""
        hashed = keys.withColumn(TOMBSTONE_KEY, self._hashed)
        moves = self.stored.tombstones.moves(hashed).join(hashed, TOMBSTONE_KEY)
        values = {k: quoted(k) for k in self._names} | {DELETED: F.lit(True), POSITION_COLUMN: F.col(POSITION_COLUMN)}
        target = facts.schema[NEW_KEY].dataType
        assert isinstance(target, T.StructType)
        return with_columns_of(facts, moves, values | {NEW_KEY: F.from_json(MOVED_TO, target, LOSSLESS_JSON)})

    def _stored_facts(self, keys: DataFrame, facts: DataFrame, truncated_now: bool = False) -> list[DataFrame]:
        """Returns rows, pending rows and tombstones of these keys as facts. `truncated_now`: also all other rows with
        columns older than the row, some of which the batch's truncate may remove."""
        names, found = self._names, []
        none = {c: F.lit(None).cast(facts.schema[c].dataType) for c in (EVENT_ID, NEW_KEY, MOVED_AT)}
        for table, kind in ((self.stored.silver, ROW), (self.stored.pending, PENDING_ROW)):
            if not table.exists():
                continue
            rows = table.matching(keys, names)
            if truncated_now:
                rows = rows.unionByName(
                    joined_by_key(table.rows_with_column_versions(), F.broadcast(keys), names, "left_anti")
                )
            floor = self.truncation.position
            rows = without_truncated(rows, None if floor is None else position_literal(floor))
            rows = rows.withColumns({DELETED: F.lit(False), **none})
            found.append(rows.select(*self._columns, *stored_columns(kind, self.table_schema.names, F.col(LOCATION))))
        if self.stored.tombstones.exists():
            hashed = keys.withColumn(TOMBSTONE_KEY, self._hashed)
            tombstones = self.stored.tombstones.matching(hashed, names)
            absent = [f for f in facts.schema.fields if f.name not in tombstones.columns]
            nulls = {f.name: F.lit(None).cast(f.dataType) for f in absent}
            deletes = tombstones.withColumns(nulls | {DELETED: F.lit(True)})
            found.append(deletes.select(*self._columns, *stored_columns(TOMBSTONE, self.table_schema.names)))
        return found


def _is_event() -> Column:
    """Returns whether a fact is an event of the batch."""
    return F.col(EVENT_ID).isNotNull()
