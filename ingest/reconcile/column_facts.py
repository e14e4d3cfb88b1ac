"""The states of a batch's keys in one form: its events, what is stored of these keys, and what concerns the keys to
which their rows have moved."""

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
from ingest.changelog.values.render import LOSSLESS_JSON
from ingest.internal_columns import LOCATION
from ingest.lakehouse.tombstones import MOVED_AT
from ingest.merge.actions import TOMBSTONE_KEY, tombstone_key
from ingest.merge.images import TableSchema
from ingest.merge.key_changes import with_columns_of
from ingest.merge.key_join import joined_by_key
from ingest.merge.partial_rows import PENDING_ROW, ROW, TOMBSTONE, stored_columns, without_truncated
from ingest.reconcile.changeset import TableState, Truncation
from ingest.spark.checkpoints import checkpoint


@dataclass(frozen=True)
class Facts:
    """Of one table."""

    table_schema: TableSchema
    stored: TableState
    truncated: Truncation

    def of(self, events: DataFrame) -> DataFrame:
        """Changes, and what is stored of their keys and of those to which they move rows."""
        facts = events.withColumn(MOVED_AT, F.lit(None).cast(POSITION))
        facts = facts.select(*self._columns, *stored_columns(None, self.table_schema.names))
        keys = facts.select(*self._key).unionByName(self._targets(facts)).distinct()
        return reduce(DataFrame.unionByName, self._kept(keys, facts, self.truncated.now), facts)

    def told(self, facts: DataFrame) -> Row:
        """`names`: the columns that some state lacks. `moves`: whether some event moves a row. `moved`: whether the
        row of some key moved away once."""
        names = F.array_distinct(F.flatten(F.collect_set(F.map_keys(COLUMN_POSITIONS))))
        moves, moved = F.bool_or(_of_event() & F.col(NEW_KEY).isNotNull()), F.bool_or(F.col(MOVED_AT).isNotNull())
        told = facts.agg(names.alias("names"), moves.alias("moves"), moved.alias("moved")).first()
        assert told is not None
        return told

    def followed(self, facts: DataFrame) -> DataFrame | None:
        """The facts, with the remembered moves of rows of which an event is older than that, and all that is stored of
        where they went. None where there is no such event."""
        key = [quoted(k) for k in self._names]
        at = facts.where(_of_event()).select(*key, POSITION_COLUMN)
        at = at.unionByName(self._targets(facts, POSITION_COLUMN))
        moved = facts.where(F.col(MOVED_AT).isNotNull()).select(*key, MOVED_AT)
        earlier = joined_by_key(at, moved, self._names).where(F.col(POSITION_COLUMN) < F.col(MOVED_AT))
        late = checkpoint(earlier.select(*key).distinct())
        if late.isEmpty():
            return None
        known = facts.select(*key).unionByName(self._targets(facts)).distinct()
        found = [facts]
        while True:
            moves = checkpoint(self._moves(late, facts))
            there = checkpoint(joined_by_key(self._targets(moves).distinct(), known, self._names, "left_anti"))
            found.append(moves)
            if there.isEmpty():
                return reduce(DataFrame.unionByName, found)
            stored = checkpoint(reduce(DataFrame.unionByName, self._kept(there, facts)))
            found.append(stored)
            known = known.unionByName(there)
            late = stored.where(F.col(MOVED_AT).isNotNull()).select(*key)

    def moves(self, facts: DataFrame) -> DataFrame:
        """`_key`, `_position` and `_moved_to` of the events that move a row, but for those that are remembered."""
        at = F.col(POSITION_COLUMN)
        new = F.max(F.when(_of_event(), at)).alias(POSITION_COLUMN)
        told = F.to_json(NEW_KEY, LOSSLESS_JSON).alias(MOVED_TO)
        moves = facts.where(F.col(NEW_KEY).isNotNull()).select(
            "*", tombstone_key(self._names).alias(TOMBSTONE_KEY), told
        )
        moves = moves.groupBy(TOMBSTONE_KEY, MOVED_TO).agg(new, F.max(F.when(~_of_event(), at)).alias("_known"))
        again = F.coalesce((at <= F.col("_known")) | is_same_source_position(at, F.col("_known")), F.lit(False))
        return moves.where(at.isNotNull() & ~again).drop("_known")

    @property
    def _names(self) -> list[str]:
        return list(self.table_schema.identity)

    @property
    def _key(self) -> list[Column]:
        return [quoted(k) for k in self._names]

    @property
    def _columns(self) -> list[Column]:
        more = [DELETED, POSITION_COLUMN, SOURCE_TS, COLUMN_POSITIONS, EVENT_ID, NEW_KEY, MOVED_AT]
        return [quoted(c) for c in (*(c.name for c in self.table_schema.columns), *more)]

    def _targets(self, facts: DataFrame, *more: str) -> DataFrame:
        """The keys to which rows move."""
        moves = facts.where(F.col(NEW_KEY).isNotNull())
        return moves.select(*(F.col(NEW_KEY)[k].alias(k) for k in self._names), *more)

    def _moves(self, keys: DataFrame, facts: DataFrame) -> DataFrame:
        """The remembered moves of the rows of these keys."""
        hashed = keys.withColumn(TOMBSTONE_KEY, tombstone_key(self._names))
        moves = self.stored.tombstones.moves(hashed).join(hashed, TOMBSTONE_KEY)
        said = {k: quoted(k) for k in self._names} | {DELETED: F.lit(True), POSITION_COLUMN: F.col(POSITION_COLUMN)}
        target = facts.schema[NEW_KEY].dataType
        assert isinstance(target, T.StructType)
        return with_columns_of(facts, moves, said | {NEW_KEY: F.from_json(MOVED_TO, target, LOSSLESS_JSON)})

    def _kept(self, keys: DataFrame, facts: DataFrame, truncated_now: bool = False) -> list[DataFrame]:
        """Rows, pending rows and tombstones of these keys; where a truncate has come with the batch, also the other
        rows that may stand on columns that it took away."""
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
            rows = without_truncated(
                rows, None if self.truncated.position is None else position_literal(self.truncated.position)
            )
            rows = rows.withColumns({DELETED: F.lit(False), **none})
            found.append(rows.select(*self._columns, *stored_columns(kind, self.table_schema.names, F.col(LOCATION))))
        if self.stored.tombstones.exists():
            hashed = keys.withColumn(TOMBSTONE_KEY, tombstone_key(names))
            tombstones = self.stored.tombstones.matching(hashed, names)
            absent = [f for f in facts.schema.fields if f.name not in tombstones.columns]
            dead = tombstones.withColumns(
                {f.name: F.lit(None).cast(f.dataType) for f in absent} | {DELETED: F.lit(True)}
            )
            found.append(dead.select(*self._columns, *stored_columns(TOMBSTONE, self.table_schema.names)))
        return found


def _of_event() -> Column:
    """Of a fact: whether it came with the batch."""
    return F.col(EVENT_ID).isNotNull()
