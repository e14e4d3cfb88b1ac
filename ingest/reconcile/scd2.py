"""The history of one table, kept by the merge: what a batch brings joins the changes that came before it, and the
versions of the keys concerned are told anew from all of these. So an event that comes late finds its place, and one
that comes again changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.change import (
    COLUMN_POSITIONS,
    DELETED,
    EVENT_ID,
    EVENT_ID_TYPE,
    NEW_KEY,
    POSITION_COLUMN,
    SOURCE_TS,
    content,
    quoted,
)
from ingest.changelog.values.render import LOSSLESS_JSON
from ingest.changelog.values.types import spark_type
from ingest.internal_columns import LOCATION, LOCATION_TYPE
from ingest.lakehouse.row_changes import RowChanges
from ingest.lakehouse.row_history import ARRIVED, OTHER_KEY, HistoryChanges, HistoryVersions
from ingest.lakehouse.silver import Silver
from ingest.merge.actions import ACTION, DELETE, INSERT, UPDATE
from ingest.merge.images import TableSchema
from ingest.merge.key_changes import with_carried_states, with_columns_of
from ingest.merge.key_join import joined_by_key
from ingest.merge.partial_rows import stored_columns
from ingest.merge.row_versions import row_versions
from ingest.names import Lakehouse
from ingest.spark.checkpoints import checkpoint


@dataclass(frozen=True)
class RowHistory:
    """Where the history of a table is kept."""

    changes: HistoryChanges
    versions: HistoryVersions

    @property
    def tables(self) -> tuple[Silver, Silver]:
        return self.changes, self.versions

    def add(
        self, brought: DataFrame, emptied: DataFrame | None, table_schema: TableSchema, told: Mapping[str, Any]
    ) -> None:
        """Two commits; should a run die between them, the same batch makes both good.

        `brought`: a batch's changes, without those that were set aside. `emptied`: position and time of truncates.
        `told`: what the commits say of themselves."""
        key = list(table_schema.key)
        kept = checkpoint(_kept(brought, emptied, table_schema))
        if not self.changes.exists():
            self.changes.create(table_schema)
        mark = [*key, POSITION_COLUMN, DELETED, ARRIVED]
        there = self.changes.matching(kept, key).select(*map(quoted, mark))
        fresh = joined_by_key(kept, there, mark, "left_anti").dropDuplicates(mark)
        _apply(self.changes, _new(fresh), table_schema, told)
        keys = (kept if emptied is None else self.changes.rows()).select(*map(quoted, key))
        self._tell(checkpoint(keys.where(F.coalesce(*_texts(key)).isNotNull()).distinct()), table_schema, told)

    def _tell(self, keys: DataFrame, table_schema: TableSchema, told: Mapping[str, Any]) -> None:
        """The versions of `keys`, and of those that rows came from or went on to."""
        key = list(table_schema.key)
        columns = [c for c in table_schema.names if c not in key]
        story, keys, partial_columns, moves = self._story(keys, table_schema)
        facts = story.where(~F.col(ARRIVED)).select(*_facts(table_schema))
        ends = self.changes.rows().where(F.coalesce(*_texts(key)).isNull()).select(DELETED, POSITION_COLUMN, SOURCE_TS)
        said = {c: quoted(c) for c in (*key, DELETED, POSITION_COLUMN, SOURCE_TS)}
        facts = facts.unionByName(with_columns_of(facts, keys.join(F.broadcast(ends)), said))
        if moves:
            facts, partial_columns = with_carried_states(facts, key, columns), columns
        wanted = row_versions(facts, key, columns, partial_columns)
        there = self.versions.exists()
        wanted = _differences(wanted, self.versions.matching(keys, key), table_schema) if there else _new(wanted)
        _apply(self.versions, wanted, table_schema, told)

    def _story(self, keys: DataFrame, table_schema: TableSchema) -> tuple[DataFrame, DataFrame, list[str], bool]:
        """All changes of these keys and of those that moves tie to them; the keys; the columns that some image lacks;
        whether there are moves."""
        key = list(table_schema.key)
        while True:
            story = checkpoint(self.changes.matching(keys, key))
            names = F.array_distinct(F.flatten(F.collect_set(F.map_keys(COLUMN_POSITIONS))))
            seen = story.agg(names.alias("names"), F.count(OTHER_KEY).alias("moves")).first()
            assert seen is not None
            found = story, keys, sorted(seen["names"]), bool(seen["moves"])
            if not seen["moves"]:
                return found
            named = story.where(F.col(OTHER_KEY).isNotNull()).select(_other_key(table_schema).alias("_other"))
            others = named.select(*(F.col("_other")[k].alias(k) for k in key)).distinct()
            more = checkpoint(joined_by_key(others, keys, key, "left_anti"))
            if more.isEmpty():
                return found
            keys = checkpoint(keys.unionByName(more))


def row_history_of(
    spark: SparkSession, lakehouse: Lakehouse, pipeline: str, table: str, personal: frozenset[str] = frozenset()
) -> RowHistory:
    """`personal`: columns of which no statistics are written."""
    return RowHistory(
        HistoryChanges(spark, lakehouse.changes(pipeline, table), personal),
        HistoryVersions(spark, lakehouse.history(pipeline, table), personal),
    )


def _texts(key: Sequence[str]) -> list[Column]:
    """Returns the columns of a key as texts: all are null where a change empties the table."""
    return [quoted(k).cast("string") for k in key]


def _kept(brought: DataFrame, emptied: DataFrame | None, table_schema: TableSchema) -> DataFrame:
    """As `Changes` holds them: what came, the keys at which rows arrived from others, and truncates."""
    moves = F.col(DELETED) & F.col(NEW_KEY).isNotNull()
    told = brought.withColumns({OTHER_KEY: F.when(moves, F.to_json(NEW_KEY, LOSSLESS_JSON)), ARRIVED: F.lit(False)})
    facts = told.select(*map(quoted, [*table_schema.names, *HistoryChanges.system_columns.names]))
    when = {c: F.col(c) for c in (POSITION_COLUMN, SOURCE_TS)} | {DELETED: F.lit(True)}
    own = F.to_json(F.struct(*map(quoted, table_schema.key)), LOSSLESS_JSON)
    target = {k: F.col(NEW_KEY)[k] for k in table_schema.key} | {OTHER_KEY: own, ARRIVED: F.lit(True)}
    kept = facts.unionByName(with_columns_of(facts, brought.where(moves), when | target))
    return (
        kept if emptied is None else kept.unionByName(with_columns_of(facts, emptied, when | {ARRIVED: F.lit(False)}))
    )


def _facts(table_schema: TableSchema) -> list[Column]:
    """As `joined` takes them."""
    said = [*table_schema.names, DELETED, POSITION_COLUMN, SOURCE_TS, COLUMN_POSITIONS]
    nobody = F.lit(None).cast(EVENT_ID_TYPE).alias(EVENT_ID)
    return [
        *map(quoted, said),
        _other_key(table_schema).alias(NEW_KEY),
        nobody,
        *stored_columns(None, table_schema.names),
    ]


def _other_key(table_schema: TableSchema) -> Column:
    types = {c.name: spark_type(c.type) for c in table_schema.columns}
    return F.from_json(OTHER_KEY, T.StructType([T.StructField(k, types[k]) for k in table_schema.key]), LOSSLESS_JSON)


def _new(rows: DataFrame) -> DataFrame:
    return rows.withColumns({ACTION: F.lit(INSERT), LOCATION: F.lit(None).cast(LOCATION_TYPE)})


def _differences(wanted: DataFrame, there: DataFrame, table_schema: TableSchema) -> DataFrame:
    """`wanted` with the `_action` that takes it from what is there, and what is not wanted any more."""
    mark = [*table_schema.key, POSITION_COLUMN]
    said = content([*table_schema.names, *HistoryVersions.system_columns.names])
    stored = there.select(*map(quoted, mark), LOCATION, said.alias("_there"))
    both = joined_by_key(wanted.withColumn("_wanted", said), stored, mark, "full_outer")
    here, before = F.col("_wanted"), F.col("_there")
    action = F.when(before.isNull(), INSERT).when(here.isNull(), DELETE).when(here != before, UPDATE)
    return both.withColumn(ACTION, action)


def _apply(table: Silver, states: DataFrame, table_schema: TableSchema, told: Mapping[str, Any]) -> None:
    changed = checkpoint(states.where(F.col(ACTION).isNotNull()))
    seen = changed.agg(
        F.collect_set(ACTION).alias("actions"),
        F.collect_set(F.col(LOCATION)["file"]).alias("files"),
        F.count(F.lit(1)).alias("rows"),
    ).first()
    assert seen is not None
    if seen["rows"]:
        table.apply(
            RowChanges(changed, frozenset(seen["actions"]), frozenset(seen["files"]), seen["rows"]), table_schema, told
        )
