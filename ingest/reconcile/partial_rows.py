"""Reconciles partial images: the batch's events and the stored state of their keys, joined column by column."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest.changelog.change import CODE, EVENT_ID, MOVED_TO, POSITION_COLUMN, REASON, quoted
from ingest.changelog.position import position_literal
from ingest.internal_columns import LOCATION
from ingest.lakehouse.row_changes import RowChanges
from ingest.merge.actions import ACTION, TOMBSTONE_KEY, WRITE_TOMBSTONE, refuse_below_horizon, tombstone_key
from ingest.merge.key_changes import with_carried_states
from ingest.merge.key_join import joined_by_key
from ingest.merge.partial_rows import (
    DELETE_POSITION,
    NEEDS_TOMBSTONE,
    PENDING_ACTION,
    PENDING_ROW,
    ROW,
    STORED,
    join_states,
    with_partial_row_actions,
)
from ingest.merge.table_schema import TableSchema
from ingest.reconcile.changeset import Changeset, TableState, Truncation, above_resync, above_truncate
from ingest.reconcile.column_facts import ColumnFacts
from ingest.spark.checkpoints import checkpoint


def reconcile_partial_rows(
    changes: DataFrame, table_schema: TableSchema, stored: TableState, truncation: Truncation, key_changes: bool
) -> Changeset:
    """Returns what the changes do to the table. `key_changes`: some delete names the key to which its row moves."""
    key = list(table_schema.identity)
    everything = checkpoint(above_truncate(changes, truncation.position))
    is_refused = F.col(CODE).isNotNull()
    facts, moves, partial_columns = _facts(
        everything.where(~is_refused), ColumnFacts(table_schema, stored, truncation), key_changes
    )
    columns = [c.name for c in table_schema.columns if c.name not in key]
    joined = join_states(facts, key, columns, partial_columns).withColumn(CODE, F.lit(None).cast("string"))
    joined = above_resync(joined, truncation.resynced).drop(CODE)
    states = with_partial_row_actions(joined, table_schema.names)
    states = checkpoint(states.withColumn(TOMBSTONE_KEY, tombstone_key(key, table_schema.key_types)))
    horizon = stored.tombstones.horizon()
    if horizon is not None:
        everything, states = _refuse_beyond_horizon(everything, states, key, horizon)
    is_changed = F.col(ACTION).isNotNull() | F.col(PENDING_ACTION).isNotNull() | F.col(NEEDS_TOMBSTONE)
    summary = states.agg(
        F.collect_set(ACTION).alias("actions"),
        F.collect_set(PENDING_ACTION).alias("pending"),
        _files(ROW, ACTION).alias("files"),
        _files(PENDING_ROW, PENDING_ACTION).alias("pending_files"),
        F.count(F.when(F.col(ACTION) != WRITE_TOMBSTONE, True)).alias("rows"),
        F.count(PENDING_ACTION).alias("pending_rows"),
        F.count_if(NEEDS_TOMBSTONE).alias("tombstones"),
        F.count_distinct(F.when(is_changed, F.col(EVENT_ID))).alias("applied"),
    ).first()
    assert summary is not None
    tombstones = states.where(NEEDS_TOMBSTONE).select(TOMBSTONE_KEY, F.col(DELETE_POSITION).alias(POSITION_COLUMN))
    if moves is not None:
        tombstones = tombstones.withColumn(MOVED_TO, F.lit(None).cast("string")).unionByName(moves)
    refused = everything.where(is_refused)
    quarantined = refused.count()
    actions, pending = frozenset(summary.actions) - {WRITE_TOMBSTONE}, frozenset(summary.pending)
    shown = states.where(F.col(ACTION).isin(*actions)).withColumn(LOCATION, F.col(ROW)["location"])
    waiting = states.where(F.col(PENDING_ACTION).isNotNull()).withColumns(
        {ACTION: F.col(PENDING_ACTION), LOCATION: F.col(PENDING_ROW)["location"]}
    )
    return Changeset(
        RowChanges(shown, actions, frozenset(summary.files), summary.rows) if actions else None,
        RowChanges(waiting, pending, frozenset(summary.pending_files), summary.pending_rows) if pending else None,
        tombstones if summary.tombstones or moves is not None else None,
        refused if quarantined else None,
        summary.applied,
        quarantined,
    )


def _facts(
    events: DataFrame, collector: ColumnFacts, key_changes: bool
) -> tuple[DataFrame, DataFrame | None, list[str]]:
    """Returns the facts of the batch's keys, the moves that tombstones have to record, and the columns that have a
    position of their own in some state."""
    key = list(collector.table_schema.identity)
    columns = [c.name for c in collector.table_schema.columns if c.name not in key]
    facts = checkpoint(collector.collect(events))
    summary = collector.summary(facts)
    followed = collector.with_moves_followed(facts) if summary.moved else None
    # A delete that names a new key may have come before the new row; an update that moves a row is both in one.
    if followed is None and not (summary.moves and (summary.names or key_changes)):
        return facts, None, sorted(summary.names)
    facts = facts if followed is None else checkpoint(followed)
    moves = collector.new_moves(facts) if summary.moves else None
    return with_carried_states(facts, key, columns), moves, columns


def _files(kind: str, action: str) -> Column:
    """Returns the aggregate of the files whose rows some action replaces."""
    return F.collect_set(F.when(F.col(action).isNotNull(), F.col(kind)["location"]["file"]))


def _refuse_beyond_horizon(
    events: DataFrame, states: DataFrame, key: list[str], horizon: tuple[int, ...]
) -> tuple[DataFrame, DataFrame]:
    """Returns the events, with a `CODE` where their key can't be judged because its tombstone may have been forgotten;
    and the states without those keys."""
    is_unknown = reduce(lambda one, other: one & other, (F.col(kind).isNull() for kind in STORED))
    coded = states.withColumns({CODE: F.lit(None).cast("string"), REASON: F.lit(None).cast("string")})
    coded = checkpoint(refuse_below_horizon(coded, F.col(POSITION_COLUMN), is_unknown, position_literal(horizon)))
    why = {CODE: F.col("_ingest_why")[CODE], REASON: F.col("_ingest_why")[REASON]}
    old = coded.where(F.col(CODE).isNotNull()).select(*map(quoted, key), F.struct(CODE, REASON).alias("_ingest_why"))
    joined_events = joined_by_key(events, F.broadcast(old), key, "left")
    refused = joined_events.withColumns({name: F.coalesce(F.col(name), text) for name, text in why.items()})
    return checkpoint(refused.drop("_ingest_why")), coded.where(F.col(CODE).isNull()).drop(CODE, REASON)
