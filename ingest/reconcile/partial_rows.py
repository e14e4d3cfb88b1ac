"""Partial images: all that is known of the batch's keys, joined column by column."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest.changelog.change import CODE, EVENT_ID, MOVED_TO, POSITION_COLUMN, REASON, quoted
from ingest.changelog.position import position_literal
from ingest.internal_columns import LOCATION
from ingest.lakehouse.row_changes import RowChanges
from ingest.merge.actions import ACTION, TOMBSTONE_KEY, WRITE_TOMBSTONE, refuse_below_horizon, tombstone_key
from ingest.merge.images import TableSchema
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
from ingest.reconcile.changeset import Changeset, TableState, Truncation, above_truncate
from ingest.reconcile.column_facts import Facts
from ingest.spark.checkpoints import checkpoint


def by_column(
    changes: DataFrame, table_schema: TableSchema, stored: TableState, truncated: Truncation, key_changes: bool
) -> Changeset:
    """`key_changes`: some delete names the key under which its row goes on."""
    key = list(table_schema.identity)
    everything = checkpoint(above_truncate(changes, truncated.position))
    bad = F.col(CODE).isNotNull()
    facts, moves, partial_columns = _facts(everything.where(~bad), Facts(table_schema, stored, truncated), key_changes)
    columns = [c.name for c in table_schema.columns if c.name not in key]
    states = with_partial_row_actions(join_states(facts, key, columns, partial_columns), table_schema.names)
    states = checkpoint(states.withColumn(TOMBSTONE_KEY, tombstone_key(key)))
    horizon = stored.tombstones.horizon()
    if horizon is not None:
        everything, states = _beyond(everything, states, key, horizon)
    changed = F.col(ACTION).isNotNull() | F.col(PENDING_ACTION).isNotNull() | F.col(NEEDS_TOMBSTONE)
    told = states.agg(
        F.collect_set(ACTION).alias("actions"),
        F.collect_set(PENDING_ACTION).alias("pending"),
        _files(ROW, ACTION).alias("files"),
        _files(PENDING_ROW, PENDING_ACTION).alias("pending_files"),
        F.count(F.when(F.col(ACTION) != WRITE_TOMBSTONE, True)).alias("rows"),
        F.count(PENDING_ACTION).alias("pending_rows"),
        F.count_if(NEEDS_TOMBSTONE).alias("buries"),
        F.count_distinct(F.when(changed, F.col(EVENT_ID))).alias("applied"),
    ).first()
    assert told is not None
    tombstones = states.where(NEEDS_TOMBSTONE).select(TOMBSTONE_KEY, F.col(DELETE_POSITION).alias(POSITION_COLUMN))
    if moves is not None:
        tombstones = tombstones.withColumn(MOVED_TO, F.lit(None).cast("string")).unionByName(moves)
    refused = everything.where(bad)
    quarantined = refused.count()
    actions, pending = frozenset(told.actions) - {WRITE_TOMBSTONE}, frozenset(told.pending)
    shown = states.where(F.col(ACTION).isin(*actions)).withColumn(LOCATION, F.col(ROW)["location"])
    waiting = states.where(F.col(PENDING_ACTION).isNotNull()).withColumns(
        {ACTION: F.col(PENDING_ACTION), LOCATION: F.col(PENDING_ROW)["location"]}
    )
    return Changeset(
        RowChanges(shown, actions, frozenset(told.files), told.rows) if actions else None,
        RowChanges(waiting, pending, frozenset(told.pending_files), told.pending_rows) if pending else None,
        tombstones if told.buries or moves is not None else None,
        refused if quarantined else None,
        told.applied,
        quarantined,
    )


def _facts(events: DataFrame, of: Facts, key_changes: bool) -> tuple[DataFrame, DataFrame | None, list[str]]:
    """The facts of the batch's keys; the moves to be remembered; and the columns of which some state has an entry."""
    key = list(of.table_schema.identity)
    columns = [c.name for c in of.table_schema.columns if c.name not in key]
    facts = checkpoint(of.of(events))
    told = of.told(facts)
    followed = of.followed(facts) if told.moved else None
    # A delete that names a new key may have come before the new row; an update that moves a row is both in one.
    if followed is None and not (told.moves and (told.names or key_changes)):
        return facts, None, sorted(told.names)
    facts = facts if followed is None else checkpoint(followed)
    moves = of.moves(facts) if told.moves else None
    return with_carried_states(facts, key, columns), moves, columns


def _files(kind: str, action: str) -> Column:
    """The files of the rows that some action replaces."""
    return F.collect_set(F.when(F.col(action).isNotNull(), F.col(kind)["location"]["file"]))


def _beyond(
    events: DataFrame, states: DataFrame, key: list[str], horizon: tuple[int, ...]
) -> tuple[DataFrame, DataFrame]:
    """The events of keys that can't be judged, refused; and the states without those keys."""
    unknown = reduce(lambda one, other: one & other, (F.col(kind).isNull() for kind in STORED))
    named = states.withColumns({CODE: F.lit(None).cast("string"), REASON: F.lit(None).cast("string")})
    judged = checkpoint(refuse_below_horizon(named, F.col(POSITION_COLUMN), unknown, position_literal(horizon)))
    told = {CODE: F.col("_why")[CODE], REASON: F.col("_why")[REASON]}
    old = judged.where(F.col(CODE).isNotNull()).select(*map(quoted, key), F.struct(CODE, REASON).alias("_why"))
    held = joined_by_key(events, F.broadcast(old), key, "left")
    refused = held.withColumns({name: F.coalesce(F.col(name), why) for name, why in told.items()}).drop("_why")
    return checkpoint(refused), judged.where(F.col(CODE).isNull()).drop(CODE, REASON)
