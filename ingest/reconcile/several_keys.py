"""Reconciles events that carry another key than the one in force of their table (`merge.key_facts`).

What an older key tells is kept as tombstones: one for each of its values, at the highest position of an event that
carried it. Images that are left, but share their values in the key in force with a newer one, wait in the pending table
without being shown: the newer one may still prove to be deleted.

Reads the table's rows by the columns of both keys. Rare, unlike the events of the key in force.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest.batches.decoding import BatchChanges
from ingest.changelog.change import CODE, COLUMN_POSITIONS, DELETED, EVENT_ID, POSITION_COLUMN, REASON, quoted
from ingest.changelog.image_reader import ImageChoice
from ingest.changelog.position import position_literal
from ingest.changelog.refusal import PARTIAL
from ingest.errors import TableUnusable
from ingest.internal_columns import LOCATION, LOCATION_TYPE
from ingest.lakehouse.rekeying import is_complete, log_unknown_keys
from ingest.lakehouse.row_changes import RowChanges
from ingest.merge.actions import ACTION, DELETE, INSERT, TOMBSTONE_KEY, UPDATE, refuse_below_horizon, tombstone_key
from ingest.merge.compaction import compacted
from ingest.merge.key_facts import carriers, facts, is_newest, is_unknown, row_id, survivors
from ingest.merge.table_schema import TableSchema
from ingest.reconcile.changeset import Changeset, TableState, Truncation, above_resync, above_truncate
from ingest.spark.checkpoints import checkpoint

Key = tuple[str, ...]
_STATE, _IN_PENDING, _IN_SILVER = 0, 1, 2
_ORIGIN, _IS_SHOWN = "_ingest_origin", "_ingest_is_shown"
_ROW = "_ingest_row"
_OLD_LOCATION, _OLD_POSITION = "_ingest_old_location", "_ingest_old_position"
_PARTIAL_REASON = (
    "values of the image were not sent, and the table has another key now, by which they can't be found: rebuild the "
    "table (ingest backfill PIPELINE --rebuild --table TABLE)"
)


@dataclass(frozen=True)
class SeveralKeys:
    """The keys of a table. `carried`: the one of the batch's events. `former`: all that were ever carried and are not
    in force; `carried` is one of them. `required`: columns of the key in force that are NOT NULL."""

    table_schema: TableSchema
    carried: Key
    former: tuple[Key, ...]
    required: Key = ()

    def hashed(self, key: Key) -> Column:
        """Returns the `tombstone_key` of one of the keys."""
        return tombstone_key(key, self.table_schema.key_types)


def require_rekeyable(table: str, stored: TableState, others: Mapping[Key, Key]) -> None:
    """Raises TableUnusable where the versions of the table's rows are kept, which are told apart by one key."""
    if stored.row_history is not None:
        names = " and ".join(f"({', '.join(key)})" for key in sorted({*others.values()}))
        raise TableUnusable(
            "key-changed",
            f"records have the key {names} too, and a row's history goes by one key",
            f"declare tables.{table}.primary_key, or remove history: true",
        )


def reconcile_several_keys(
    changes: BatchChanges, keys: SeveralKeys, stored: TableState, truncation: Truncation
) -> Changeset:
    """Returns what events with the key `keys.carried` do to the table. Writes nothing.

    A partial image is refused: the row that has its other values can't be found any more."""
    everything = above_truncate(changes(ImageChoice.AFTER), truncation.position)
    newest = above_resync(compacted(everything, keys.carried), truncation.resynced)
    states = checkpoint(with_refusals(newest, keys, stored))
    refused = states.where(F.col(CODE).isNotNull())
    able = states.where(F.col(CODE).isNull()).drop(CODE, REASON)
    candidates = checkpoint(_candidates(able, keys, stored))
    known = {key: stored_facts(candidates, keys.hashed(key), stored) for key in (*keys.former, keys.table_schema.key)}
    # By what is stored: a row has the position of its newest fact until a newer one comes.
    types = keys.table_schema.key_types
    rows = carriers(candidates.where(F.col(_ORIGIN) != _STATE), keys.table_schema.key, known, types)
    own = facts(rows, keys.table_schema.key, types)
    known[keys.carried] = known[keys.carried].unionByName(facts(able, keys.carried, types))
    known[keys.table_schema.key] = known[keys.table_schema.key].unionByName(own)
    left = survivors(candidates, known, types).withColumn(_IS_SHOWN, is_newest(keys.table_schema.key, keys.required))
    left = checkpoint(left)
    if keys.required:
        log_unknown_keys(left.where(F.col(_ORIGIN) == _STATE), keys.table_schema, keys.required)
    return _changeset(able, refused, candidates, left, keys, stored)


def with_refusals(states: DataFrame, keys: SeveralKeys, stored: TableState) -> DataFrame:
    """Returns the states with a `CODE` where they can't be applied."""
    is_partial = F.col(CODE).isNull() & ~F.col(DELETED) & F.col(COLUMN_POSITIONS).isNotNull()
    refusal = {CODE: PARTIAL, REASON: _PARTIAL_REASON}
    states = states.withColumns(
        {name: F.when(is_partial, F.lit(text)).otherwise(F.col(name)) for name, text in refusal.items()}
    )
    horizon = stored.tombstones.horizon()
    if horizon is None:
        return states
    hashed = states.withColumn(TOMBSTONE_KEY, keys.hashed(keys.carried))
    told = stored.tombstones.matching(hashed).select(TOMBSTONE_KEY, F.lit(True).alias("_ingest_is_told"))
    known = hashed.join(F.broadcast(told), TOMBSTONE_KEY, "left")
    refused = refuse_below_horizon(
        known, F.col(POSITION_COLUMN), F.col("_ingest_is_told").isNull(), position_literal(horizon)
    )
    return refused.drop(TOMBSTONE_KEY, "_ingest_is_told")


def _candidates(able: DataFrame, keys: SeveralKeys, stored: TableState) -> DataFrame:
    """Returns the images of the batch, and all stored rows that they or its facts concern: the table's columns and
    system columns, `LOCATION` and `_ORIGIN`. Of copies of one image there is one, that of silver if there is."""
    images = able.where(~F.col(DELETED)).withColumn(LOCATION, F.lit(None).cast(LOCATION_TYPE))
    columns = [*stored.silver.schema(keys.table_schema).names, LOCATION]
    found = [_of(images, columns, _STATE)]
    hit = _stored_rows(able, keys.carried, columns, stored)
    affected = reduce(
        DataFrame.unionByName, [images.select(*_names(keys)), *(rows.select(*_names(keys)) for rows in hit)]
    )
    affected = affected.where(~is_unknown(keys.required))  # Their key finds no others.
    found += [*hit, *_stored_rows(affected, keys.table_schema.key, columns, stored)]
    together = reduce(DataFrame.unionByName, found)
    by = [*_names(keys), F.col(POSITION_COLUMN)]
    order = [c for c in together.columns if c not in (*keys.table_schema.key, POSITION_COLUMN)]
    best = F.max_by(F.struct(*map(quoted, order)), F.col(_ORIGIN)).alias("_ingest_best")
    once = together.groupBy(*by).agg(best)
    return once.select(*by, *(F.col("_ingest_best").getField(c).alias(c) for c in order))


def _names(keys: SeveralKeys) -> list[Column]:
    return [quoted(k) for k in keys.table_schema.key]


def _stored_rows(states: DataFrame, key: Key, columns: Sequence[str], stored: TableState) -> list[DataFrame]:
    """Returns the complete rows of silver and of the pending table whose `key` is in `states`."""
    parts = ((stored.pending, _IN_PENDING), (stored.silver, _IN_SILVER))
    found = ((table.matching(states.select(*map(quoted, key)), key), at) for table, at in parts if table.exists())
    return [_of(rows.where(is_complete()), columns, at) for rows, at in found]


def _of(rows: DataFrame, columns: Sequence[str], origin: int) -> DataFrame:
    return rows.select(*map(quoted, columns), F.lit(origin).alias(_ORIGIN))


def stored_facts(candidates: DataFrame, hashed_key: Column, stored: TableState) -> DataFrame:
    """Returns the tombstones of the candidates' values of a key. `hashed_key`: its `tombstone_key`."""
    hashed = candidates.select(hashed_key.alias(TOMBSTONE_KEY), POSITION_COLUMN).distinct()
    if not stored.tombstones.exists():
        return hashed.limit(0)
    return stored.tombstones.matching(hashed).select(TOMBSTONE_KEY, POSITION_COLUMN)


def _changeset(
    able: DataFrame, refused: DataFrame, candidates: DataFrame, left: DataFrame, keys: SeveralKeys, stored: TableState
) -> Changeset:
    """Returns the differences between what is stored and what is `left`."""
    shown = checkpoint(_silver_actions(candidates, left, keys))
    hidden = left.where(~F.col(_IS_SHOWN))
    waiting = hidden.where(F.col(_ORIGIN) != _IN_PENDING).withColumn(ACTION, F.lit(INSERT))
    kept = hidden.where(F.col(_ORIGIN) == _IN_PENDING).select(LOCATION)
    removed = candidates.where(F.col(_ORIGIN) == _IN_PENDING).select(LOCATION).join(kept, LOCATION, "left_anti")
    new = checkpoint(new_facts(able, keys.hashed(keys.carried), stored))
    applied = new.select(EVENT_ID).distinct().count()
    return Changeset(
        located_changes(shown),
        located_changes(checkpoint(waiting)),
        new.select(TOMBSTONE_KEY, POSITION_COLUMN) if applied else None,
        None if refused.isEmpty() else refused,
        applied,
        refused.count(),
        removed_pending=None if removed.isEmpty() else removed,
    )


def _silver_actions(candidates: DataFrame, left: DataFrame, keys: SeveralKeys) -> DataFrame:
    """Returns the rows to write to silver or to remove from it, with their `ACTION` and the `LOCATION` of the row that
    each replaces."""
    key, same = keys.table_schema.key, row_id(keys.table_schema.key, keys.required).alias(_ROW)
    new = left.where(_IS_SHOWN).drop(LOCATION, _ORIGIN, _IS_SHOWN).select("*", same)
    old = candidates.where(F.col(_ORIGIN) == _IN_SILVER).select(
        same,
        F.struct(*map(quoted, key)).alias("_ingest_old_key"),
        F.col(POSITION_COLUMN).alias(_OLD_POSITION),
        F.col(LOCATION).alias(_OLD_LOCATION),
    )
    both = new.join(old, _ROW, "full_outer")
    position, before = F.col(POSITION_COLUMN), F.col(_OLD_POSITION)
    action = F.when(position.isNull(), DELETE).when(before.isNull(), INSERT).when(position != before, UPDATE)
    values = {k: F.when(position.isNull(), F.col("_ingest_old_key").getField(k)).otherwise(quoted(k)) for k in key}
    changed = both.withColumns({ACTION: action, LOCATION: F.col(_OLD_LOCATION), **values}).where(
        F.col(ACTION).isNotNull()
    )
    return changed.drop(_ROW, "_ingest_old_key", _OLD_POSITION, _OLD_LOCATION)


def located_changes(states: DataFrame) -> RowChanges | None:
    """Returns the row changes; None if there are none."""
    counted = states.groupBy(ACTION, F.col(LOCATION)["file"].alias("file")).count().collect()  # a row per file
    files = frozenset(row["file"] for row in counted if row["file"] is not None)
    actions, rows = frozenset(row[ACTION] for row in counted), sum(row["count"] for row in counted)
    return RowChanges(states, actions, files, rows, by_location=True) if rows else None


def new_facts(able: DataFrame, hashed_key: Column, stored: TableState) -> DataFrame:
    """Returns the states that are newer than what is known of their values of `carried`, with their `TOMBSTONE_KEY`."""
    hashed = able.withColumn(TOMBSTONE_KEY, hashed_key)
    known = stored_facts(able, hashed_key, stored).withColumnRenamed(POSITION_COLUMN, _OLD_POSITION)
    is_new = F.col(_OLD_POSITION).isNull() | (F.col(POSITION_COLUMN) > F.col(_OLD_POSITION))
    return hashed.join(known, TOMBSTONE_KEY, "left").where(is_new).select(TOMBSTONE_KEY, POSITION_COLUMN, EVENT_ID)
