"""Reconciles whole images: the newest change of each key against the one position that is stored of its row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.batches.decoding import BatchChanges, Decoding
from ingest.changelog.change import (
    COLUMN_POSITIONS,
    COLUMN_POSITIONS_TYPE,
    EVENT_ID,
    MOVED,
    NEW_KEY,
    POSITION_COLUMN,
    content_hash,
    quoted,
)
from ingest.changelog.image_reader import ImageChoice
from ingest.lakehouse.row_changes import RowChanges
from ingest.lakehouse.tombstones import MOVED_AT
from ingest.merge.actions import ACTION, DELETE, REFUSE, TIED, TOMBSTONE_KEY, WRITE_TOMBSTONE, tombstone_key
from ingest.merge.compaction import compacted
from ingest.merge.key_join import joined_by_key
from ingest.merge.table_schema import TableSchema
from ingest.reconcile.action_counts import IS_PARTIAL, ActionCounts, count_actions, replaced_file, takes_effect
from ingest.reconcile.changeset import Changeset, TableState, Truncation, above_resync, above_truncate
from ingest.reconcile.small_batch import with_stored_actions
from ingest.reconcile.stored_state import lookup_columns, with_row_actions
from ingest.spark.checkpoints import checkpoint, unpersist
from ingest.spark.prepared import run_prepared

_BROADCAST_TOMBSTONES = 2_000_000
"""Most tombstones that are broadcast: 250 MB."""
_EVENTS_PER_PARTITION = 1_000_000
"""A partition of this size takes 500 MB while it is sorted."""


def reconcile_whole_rows(
    changes: BatchChanges,
    table_schema: TableSchema,
    stored: TableState,
    truncation: Truncation,
    event_count: int,
) -> Changeset | None:
    """Returns what whole images do to the table; None where positions of single columns are needed.

    `event_count`: about the number of changes. A state at its row's own position is compared with the row: an equal one
    is a duplicate."""
    key, is_small = table_schema.identity, event_count <= stored.tuning.small_batch_events
    scan_all = _is_most_of_table(stored, event_count)
    parts = None if is_small else _partition_count(changes.spark, event_count)
    states = _compacted(changes, truncation, key, parts, scan_all)
    if not scan_all and stored.pending.exists() and not stored.pending.matching(states, key).isEmpty():
        return None
    if is_small:
        resolved = with_stored_actions(states, stored, key)
    else:
        resolved = checkpoint(_with_stored_actions(states, stored, key, scan_all))
    counts = count_actions(resolved, is_small)
    if not scan_all and not is_small:
        unpersist(states)
    if counts.column_versions or (counts.moved and _moved_later(changes, resolved, key)):
        return None
    some_differ = bool(counts.tied) and not _are_duplicates(resolved.where(TIED), counts, table_schema, stored)
    if some_differ:
        resolved, counts = _without_duplicates(resolved, counts, table_schema, stored)
        is_small = False
    else:
        counts = counts.without(counts.tied, counts.tied_moves)
    applied = counts.effects
    if counts.moves:  # An event that moves a row is one event with two effects.
        applied = resolved.where(takes_effect(some_differ)).select(EVENT_ID).distinct().count()
    silver = tombstones = None
    if counts.actions - {WRITE_TOMBSTONE, REFUSE}:
        rows = run_prepared(_silver_rows, (some_differ,), resolved, is_small=is_small)
        silver = RowChanges(rows, counts.actions, counts.files, counts.effects, parts, counts.removed_rows)
    if counts.actions & {DELETE, WRITE_TOMBSTONE}:
        tombstones = run_prepared(_new_tombstones, (), resolved, is_small=is_small)
    return Changeset(
        silver,
        None,
        tombstones,
        resolved.where(F.col(ACTION) == REFUSE) if counts.refused else None,
        applied,
        counts.refused,
        is_small,
    )


def _compacted(
    changes: BatchChanges, truncation: Truncation, key: tuple[str, ...], parts: int | None, scan_all: bool
) -> DataFrame:
    """Returns the newest state of each key. `parts`: number of partitions, sorted by key; None: a small batch, in
    one."""
    floors = truncation.position, truncation.resynced
    by, is_small = (changes.decoding(ImageChoice.AFTER), *floors, key, parts), parts is None
    # Checkpointed, because the plan that decodes is large: what follows is planned over plain rows.
    return run_prepared(_states, by, *changes.events, once=is_small or not scan_all, is_small=is_small)


def _states(
    decoding: Decoding,
    truncated: tuple[int, ...] | None,
    resynced: tuple[int, ...] | None,
    key: tuple[str, ...],
    parts: int | None,
    *events: DataFrame,
) -> DataFrame:
    rows = _without_null_columns(above_truncate(decoding.decode(*events), truncated))
    if parts is None:
        rows = rows.coalesce(1)  # Each part of a Decoding has partitions of its own.
    hashed = tombstone_key(key, decoding.table_schema.key_types)
    return above_resync(compacted(rows, key, parts), resynced).withColumn(TOMBSTONE_KEY, hashed)


def _silver_rows(include_tied: bool, resolved: DataFrame) -> DataFrame:
    """Returns the states that are written to silver or removed from it."""
    states = resolved.where(takes_effect(include_tied) & (F.col(ACTION) != WRITE_TOMBSTONE))
    return states.withColumn(COLUMN_POSITIONS, F.lit(None).cast(COLUMN_POSITIONS_TYPE))


def _new_tombstones(resolved: DataFrame) -> DataFrame:
    return resolved.where(F.col(ACTION).isin(DELETE, WRITE_TOMBSTONE)).select(TOMBSTONE_KEY, POSITION_COLUMN)


def _partition_count(spark: SparkSession, event_count: int) -> int:
    """Returns Spark's configured number of shuffle partitions, or the smallest multiple of it whose partitions a task
    can sort in memory."""
    configured = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    return configured * max(1, -(-event_count // (configured * _EVENTS_PER_PARTITION)))


def _is_most_of_table(stored: TableState, event_count: int) -> bool:
    """Returns whether a batch of this size may concern most of what is stored, or nothing is stored. Then the table is
    read as a whole, without knowing the batch's keys first."""
    if not any(table.exists() for table in (stored.silver, stored.tombstones, stored.pending)):
        return True
    if event_count <= stored.tuning.small_batch_events or stored.pending.exists():
        return False
    rows, tombstones = stored.silver.size(), stored.tombstones.size()
    most = stored.tuning.full_scan_rows_per_event * event_count
    return rows + tombstones <= most and tombstones <= _BROADCAST_TOMBSTONES


def _with_stored_actions(states: DataFrame, stored: TableState, key: Sequence[str], scan_all: bool) -> DataFrame:
    """Returns the states as `with_row_actions` does. `scan_all`: read all that is stored, instead of only the batch's
    keys."""
    rows, tombstones = (lookup(states, stored, key, scan_all) for lookup in (_rows, _tombstones))
    return with_row_actions(key, stored.tombstones.horizon(), states, rows, tombstones)


def _rows(states: DataFrame, stored: TableState, key: Sequence[str], scan_all: bool) -> DataFrame | None:
    if not stored.silver.exists():
        return None
    rows = stored.silver.located() if scan_all else stored.silver.matching(states, key)
    return lookup_columns(key, rows)


def _tombstones(states: DataFrame, stored: TableState, key: Sequence[str], scan_all: bool) -> DataFrame | None:
    if not stored.tombstones.exists():
        return None
    return F.broadcast(stored.tombstones.all()) if scan_all else stored.tombstones.matching(states, key)


def _without_null_columns(changes: DataFrame) -> DataFrame:
    """Returns the changes with `IS_PARTIAL` in place of the columns that are null in every whole image, which each plan
    over them would carry along."""
    return changes.withColumn(IS_PARTIAL, F.col(COLUMN_POSITIONS).isNotNull()).drop(COLUMN_POSITIONS, NEW_KEY)


def _moved_later(changes: BatchChanges, resolved: DataFrame, key: Sequence[str]) -> bool:
    """Returns whether an event is older than a move of its row to another key: the event's values may then belong to
    that key as well."""
    moved = resolved.where(F.col(MOVED_AT).isNotNull()).select(*map(quoted, key), MOVED_AT)
    older = joined_by_key(changes(ImageChoice.AFTER), F.broadcast(moved), key)
    older = older.where(F.col(POSITION_COLUMN) < F.col(MOVED_AT))
    return not older.isEmpty()


def _are_duplicates(tied: DataFrame, counts: ActionCounts, table_schema: TableSchema, stored: TableState) -> bool:
    """Returns whether each of these states equals the row at its position."""
    key, state_content, count = list(table_schema.identity), content_hash(table_schema.names), sum(counts.tied.values())
    states = tied.select(*map(quoted, key), state_content.alias("_ingest_state_content"))
    files = {file for _, file in counts.tied if file is not None}
    are_few = count <= stored.tuning.page_lookup_keys
    rows = stored.silver.matching_with(states, key, ["_ingest_state_content"], files, are_few)
    (equal,) = rows.agg(F.count_if(F.col("_ingest_state_content") == state_content).alias("same")).collect()
    return bool(equal["same"] == count)


def _without_duplicates(
    resolved: DataFrame, counts: ActionCounts, table_schema: TableSchema, stored: TableState
) -> tuple[DataFrame, ActionCounts]:
    """Returns the states without an action where a state equals the row at its own position, and the counts without
    these."""
    columns, key = table_schema.names, list(table_schema.identity)
    tied = resolved.where(TIED)
    rows = stored.silver.matching(tied, key).select(
        *map(quoted, key), content_hash(columns).alias("_ingest_stored_content")
    )
    states = tied.select(
        *map(quoted, key), ACTION, replaced_file(), MOVED, content_hash(columns).alias("_ingest_state_content")
    )
    same = checkpoint(
        joined_by_key(states, rows, key)
        .where(F.col("_ingest_state_content") == F.col("_ingest_stored_content"))
        .drop("_ingest_state_content", "_ingest_stored_content")
    )
    aggregates = (F.count(F.lit(1)).alias("states"), F.count_if(MOVED).alias("moves"))
    counted = same.groupBy(ACTION, "_ingest_file").agg(*aggregates).collect()  # a row per action and file
    duplicates = Counter({(row[ACTION], row["_ingest_file"]): row["states"] for row in counted})
    # A change that can't be applied may have the same key.
    marks = F.broadcast(same.select(*map(quoted, key), F.lit(True).alias("_ingest_is_duplicate")))
    found = joined_by_key(resolved, marks, key, "left")
    found = found.withColumn(
        ACTION, F.when(~(F.col(TIED) & F.col("_ingest_is_duplicate").isNotNull()), F.col(ACTION))
    ).drop("_ingest_is_duplicate")
    return found, replace(counts, removed_rows=None).without(duplicates, sum(row["moves"] for row in counted))
