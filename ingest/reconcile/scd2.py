"""Keeps the row history (SCD type 2) of a table: a batch's changes are added to those that came before, and the
versions of the keys concerned are derived anew from all of these. So a late event finds its place, and a repeated one
changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.batches.table_batch import RESYNCED_AT
from ingest.changelog.change import (
    COLUMN_POSITIONS,
    DELETED,
    EVENT_ID,
    EVENT_ID_TYPE,
    NEW_KEY,
    POSITION_COLUMN,
    SOURCE_TS,
    content_hash,
    quoted,
)
from ingest.changelog.position import POSITION
from ingest.errors import ConfigError
from ingest.internal_columns import LOCATION, LOCATION_TYPE
from ingest.lakehouse.row_changes import RowChanges
from ingest.lakehouse.row_history import ARRIVED, OTHER_KEY, HistoryChanges, HistoryVersions
from ingest.lakehouse.silver import Silver
from ingest.merge.actions import ACTION, DELETE, INSERT, UPDATE
from ingest.merge.key_changes import with_carried_states, with_columns_of
from ingest.merge.key_join import joined_by_key
from ingest.merge.partial_rows import stored_columns
from ingest.merge.row_versions import row_versions
from ingest.merge.table_schema import TableSchema
from ingest.names import Lakehouse
from ingest.spark.checkpoints import checkpoint
from ingest.tuning import DEFAULT_TUNING, Tuning
from ingest.values.render import LOSSLESS_JSON
from ingest.values.types import spark_type


@dataclass(frozen=True)
class RowHistory:
    """The tables that hold the history of one table: every change, and the versions derived from them."""

    changes: HistoryChanges
    versions: HistoryVersions

    @property
    def tables(self) -> tuple[Silver, Silver]:
        return self.changes, self.versions

    def add(
        self,
        changes: DataFrame,
        emptied: DataFrame | None,
        table_schema: TableSchema,
        user_metadata: Mapping[str, Any],
        has_resyncs: bool = False,
    ) -> None:
        """Adds a batch in two commits; the same batch again completes both after a crash in between.

        `changes`: the batch's changes, without refused ones. `emptied`: `_position` and `_source_ts` of truncates and
        resyncs, as `TableBatch.emptied` returns them. `user_metadata`: of the commits. `has_resyncs`: the table was
        read again as a whole, now or before. Raises ConfigError for a table without a key."""
        if not table_schema.key:
            raise ConfigError(
                f"table {table_schema.table} has no key, so none of its rows has a history",
                "declare its primary_key, or remove history: true",
            )
        key = list(table_schema.key)
        history_rows = checkpoint(_history_rows(changes, emptied, table_schema))
        if not self.changes.exists():
            self.changes.create(table_schema)
        identity = [*key, POSITION_COLUMN, DELETED, ARRIVED]
        stored = self.changes.matching(history_rows, key).select(*map(quoted, identity))
        new = joined_by_key(history_rows, stored, identity, "left_anti").dropDuplicates(identity)
        _commit(self.changes, _inserts(new), table_schema, user_metadata)
        keys = (history_rows if emptied is None else self.changes.rows()).select(*map(quoted, key))
        self._rebuild_versions(
            checkpoint(keys.where(F.coalesce(*_key_texts(key)).isNotNull()).distinct()),
            table_schema,
            user_metadata,
            has_resyncs,
        )

    def _rebuild_versions(
        self, keys: DataFrame, table_schema: TableSchema, user_metadata: Mapping[str, Any], has_resyncs: bool
    ) -> None:
        """Derives the versions of `keys` anew, and of the keys that rows came from or moved to."""
        key = list(table_schema.key)
        columns = [c for c in table_schema.names if c not in key]
        connected, keys, partial_columns, moves = self._connected_changes(keys, table_schema)
        facts = connected.where(~F.col(ARRIVED)).select(*_facts(table_schema))
        columns_of_end = {c: quoted(c) for c in (*key, DELETED, POSITION_COLUMN, SOURCE_TS)}
        facts = facts.unionByName(with_columns_of(facts, self._ends(keys, facts, key, has_resyncs), columns_of_end))
        if moves:
            facts, partial_columns = with_carried_states(facts, key, columns), columns
        versions_now = row_versions(facts, key, columns, partial_columns)
        versions_now = (
            _differences(versions_now, self.versions.matching(keys, key), table_schema)
            if self.versions.exists()
            else _inserts(versions_now)
        )
        _commit(self.versions, versions_now, table_schema, user_metadata)

    def _ends(self, keys: DataFrame, facts: DataFrame, key: list[str], has_resyncs: bool) -> DataFrame:
        """Returns the truncates and resyncs that end the versions of these keys: each key with `DELETED`, `_position`
        and `_source_ts`."""
        ends = self.changes.rows().where(F.coalesce(*_key_texts(key)).isNull())
        if not has_resyncs:
            return keys.join(F.broadcast(ends.select(DELETED, POSITION_COLUMN, SOURCE_TS)))
        resynced_at = F.from_json(OTHER_KEY, POSITION).alias("_ingest_through")
        ends = keys.join(F.broadcast(ends.select(DELETED, POSITION_COLUMN, SOURCE_TS, resynced_at)))
        # A row that changed while its table was read again was there.
        at = facts.select(*map(quoted, key), F.col(POSITION_COLUMN).alias("_ingest_changed"))
        during = joined_by_key(ends.where(F.col("_ingest_through").isNotNull()), at, key)
        during = during.where(
            (F.col("_ingest_changed") > F.col(POSITION_COLUMN)) & (F.col("_ingest_changed") <= F.col("_ingest_through"))
        )
        return joined_by_key(
            ends, during.select(*map(quoted, key), POSITION_COLUMN).distinct(), [*key, POSITION_COLUMN], "left_anti"
        )

    def _connected_changes(
        self, keys: DataFrame, table_schema: TableSchema
    ) -> tuple[DataFrame, DataFrame, list[str], bool]:
        """Returns all changes of these keys and of the keys that moves connect to them; all these keys; the columns
        that some image lacks; whether there are moves."""
        key = list(table_schema.key)
        while True:
            connected = checkpoint(self.changes.matching(keys, key))
            names = F.array_distinct(F.flatten(F.collect_set(F.map_keys(COLUMN_POSITIONS))))
            summary = connected.agg(names.alias("names"), F.count(OTHER_KEY).alias("moves")).first()
            assert summary is not None
            result = connected, keys, sorted(summary["names"]), bool(summary["moves"])
            if not summary["moves"]:
                return result
            named = connected.where(F.col(OTHER_KEY).isNotNull()).select(
                _other_key(table_schema).alias("_ingest_other")
            )
            others = named.select(*(F.col("_ingest_other")[k].alias(k) for k in key)).distinct()
            new_keys = checkpoint(joined_by_key(others, keys, key, "left_anti"))
            if new_keys.isEmpty():
                return result
            keys = checkpoint(keys.unionByName(new_keys))


def row_history_of(
    spark: SparkSession,
    lakehouse: Lakehouse,
    pipeline: str,
    table: str,
    personal: frozenset[str] = frozenset(),
    tuning: Tuning = DEFAULT_TUNING,
) -> RowHistory:
    """Returns the row history of a pipeline's table. `personal`: columns of which no statistics are written."""
    return RowHistory(
        HistoryChanges(spark, lakehouse.changes(pipeline, table), personal, tuning),
        HistoryVersions(spark, lakehouse.history(pipeline, table), personal, tuning),
    )


def _key_texts(key: Sequence[str]) -> list[Column]:
    """Returns the columns of a key as texts: all are null where a change empties the table."""
    return [quoted(k).cast("string") for k in key]


def _history_rows(changes: DataFrame, emptied: DataFrame | None, table_schema: TableSchema) -> DataFrame:
    """Returns the batch in the columns of `HistoryChanges`: its changes, the keys at which rows arrived from others,
    and truncates."""
    moves = F.col(DELETED) & F.col(NEW_KEY).isNotNull()
    columns = changes.withColumns({OTHER_KEY: F.when(moves, F.to_json(NEW_KEY, LOSSLESS_JSON)), ARRIVED: F.lit(False)})
    facts = columns.select(*map(quoted, [*table_schema.names, *HistoryChanges.system_columns.names]))
    common = {c: F.col(c) for c in (POSITION_COLUMN, SOURCE_TS)} | {DELETED: F.lit(True)}
    own_key = F.to_json(F.struct(*map(quoted, table_schema.key)), LOSSLESS_JSON)
    target = {k: F.col(NEW_KEY)[k] for k in table_schema.key} | {OTHER_KEY: own_key, ARRIVED: F.lit(True)}
    rows = facts.unionByName(with_columns_of(facts, changes.where(moves), common | target))
    if emptied is None:
        return rows
    end = {ARRIVED: F.lit(False), OTHER_KEY: F.col(RESYNCED_AT)}
    return rows.unionByName(with_columns_of(facts, emptied, common | end))


def _facts(table_schema: TableSchema) -> list[Column]:
    """Returns the columns that `merge.partial_rows.join_states` takes."""
    names = [*table_schema.names, DELETED, POSITION_COLUMN, SOURCE_TS, COLUMN_POSITIONS]
    no_event = F.lit(None).cast(EVENT_ID_TYPE).alias(EVENT_ID)
    return [
        *map(quoted, names),
        _other_key(table_schema).alias(NEW_KEY),
        no_event,
        *stored_columns(None, table_schema.names),
    ]


def _other_key(table_schema: TableSchema) -> Column:
    types = {c.name: spark_type(c.type) for c in table_schema.columns}
    return F.from_json(OTHER_KEY, T.StructType([T.StructField(k, types[k]) for k in table_schema.key]), LOSSLESS_JSON)


def _inserts(rows: DataFrame) -> DataFrame:
    return rows.withColumns({ACTION: F.lit(INSERT), LOCATION: F.lit(None).cast(LOCATION_TYPE)})


def _differences(versions_now: DataFrame, stored_versions: DataFrame, table_schema: TableSchema) -> DataFrame:
    """Returns `versions_now` and the stored versions that are no longer among them, each with the `ACTION` that turns
    the stored versions into `versions_now`; null for equal ones."""
    identity = [*table_schema.key, POSITION_COLUMN]
    row_content = content_hash([*table_schema.names, *HistoryVersions.system_columns.names])
    stored = stored_versions.select(*map(quoted, identity), LOCATION, row_content.alias("_ingest_stored_content"))
    both = joined_by_key(versions_now.withColumn("_ingest_new_content", row_content), stored, identity, "full_outer")
    here, before = F.col("_ingest_new_content"), F.col("_ingest_stored_content")
    action = F.when(before.isNull(), INSERT).when(here.isNull(), DELETE).when(here != before, UPDATE)
    return both.withColumn(ACTION, action)


def _commit(table: Silver, states: DataFrame, table_schema: TableSchema, user_metadata: Mapping[str, Any]) -> None:
    changed = checkpoint(states.where(F.col(ACTION).isNotNull()))
    summary = changed.agg(
        F.collect_set(ACTION).alias("actions"),
        F.collect_set(F.col(LOCATION)["file"]).alias("files"),
        F.count(F.lit(1)).alias("rows"),
    ).first()
    assert summary is not None
    if summary["rows"]:
        table.apply(
            RowChanges(changed, frozenset(summary["actions"]), frozenset(summary["files"]), summary["rows"]),
            table_schema,
            user_metadata,
        )
