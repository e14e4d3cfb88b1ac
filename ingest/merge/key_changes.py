"""Carries the values of a row to its new key.

Debezium sends a change of a key as a delete of the old key, whose header `__debezium.newkey` names the new one, and a
create under the new key. The create lacks unchanged TOASTed values; these are the old row's, as of right before the
delete. So each such delete yields a state of the new key that is no image: its columns are entries with `before`
(`partial_rows`). If the create comes in a later batch, that state waits in the pending table, without a position.

Unchanged values follow a row to its new key even if older events arrive late: they are carried over again along the
move that the old key's tombstone stores (`_ingest_moved_to`), and of several the one of the highest `told` position
wins.

A move also implies that its target did not exist right before: the new key counts as deleted just below the position of
the move, even if no event deletes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest.changelog.change import (
    COLUMN_POSITIONS,
    COLUMN_POSITIONS_TYPE,
    DELETED,
    EVENT_ID,
    NEW_KEY,
    POSITION_COLUMN,
    SOURCE_TS,
    quoted,
)
from ingest.changelog.position import POSITION
from ingest.merge.key_join import joined_by_key
from ingest.merge.partial_rows import CARRIED, join_states

NEW_KEY_HEADER = "__debezium.newkey"
_AT, _TARGET = "_ingest_at", "_ingest_target"
_LAST = 2**31 - 1
"""A partition number above all others."""


def names_new_key() -> Column:
    """Returns true if an event's headers name a new key."""
    return F.coalesce(F.exists("headers", lambda h: h["key"] == NEW_KEY_HEADER), F.lit(False))


def new_key_text() -> Column:
    """Returns the new key from the headers, as JSON text in the form of a record's key; null without one."""
    found = F.filter("headers", lambda h: h["key"] == NEW_KEY_HEADER)
    return F.try_element_at(found, F.lit(1))["value"].cast("string")


def with_carried_states(facts: DataFrame, key: Sequence[str], columns: Sequence[str]) -> DataFrame:
    """Returns `facts` and the states that key changes carry over to new keys.

    `facts`: states of keys in the form of `partial_rows.join_states`; those with a `_ingest_new_key` are moves.
    `columns`: those other than the key's. A row may move several times within a batch, so the states are computed
    repeatedly, one move further each time, until their checksum no longer changes.
    """
    facts = facts.unionByName(_vacated(facts, key))
    all_states, last_checksum = facts, 0
    state_hash = F.xxhash64(*map(quoted, key), F.array_sort(F.map_entries(COLUMN_POSITIONS)))
    while True:
        carried = _carried(all_states, facts, key, columns).localCheckpoint()
        row = carried.agg(F.sum(state_hash.cast("decimal(20,0)"))).first()
        checksum = (row[0] if row else None) or 0
        all_states = facts.unionByName(carried)
        if checksum == last_checksum:
            return all_states
        last_checksum = checksum


def _carried(all_states: DataFrame, facts: DataFrame, key: Sequence[str], columns: Sequence[str]) -> DataFrame:
    moves = facts.where(F.col(NEW_KEY).isNotNull() & F.col(DELETED))
    moves = moves.select(*map(quoted, key), F.col(POSITION_COLUMN).alias(_AT), F.col(NEW_KEY).alias(_TARGET))
    state_position = F.coalesce(F.col(POSITION_COLUMN), F.array_max(known_column_positions()))
    earlier = joined_by_key(all_states, F.broadcast(moves), key).where(state_position < F.col(_AT))
    # Carried values move on with a row even if its image has not arrived or has moved already.
    states = join_states(earlier, [*key, _AT, _TARGET], columns, columns).where(~F.col(DELETED) | F.col(CARRIED))
    values = {c: quoted(c) for c in columns} | {k: F.col(_TARGET)[k] for k in key}
    system_columns = {DELETED: F.lit(False), COLUMN_POSITIONS: _as_befores(columns), EVENT_ID: F.col(EVENT_ID)}
    return with_columns_of(facts, states, values | system_columns)


def _vacated(facts: DataFrame, key: Sequence[str]) -> DataFrame:
    """Returns deletes of the keys to which rows move, just below the position of the move."""
    at = F.col(POSITION_COLUMN)
    for name, lowest in {"streamed": 0, "offset": -1, "partition": -1}.items():
        at = at.withField(name, F.lit(lowest))
    values = {k: F.col(NEW_KEY)[k] for k in key} | {DELETED: F.lit(True), POSITION_COLUMN: at}
    return with_columns_of(facts, facts.where(F.col(NEW_KEY).isNotNull()), values | {SOURCE_TS: F.col(SOURCE_TS)})


def with_columns_of(facts: DataFrame, rows: DataFrame, values: Mapping[str, Column]) -> DataFrame:
    """Returns `rows` with the columns and types of `facts`: those of `values`, null in all other columns."""
    types = {f.name: f.dataType for f in facts.schema.fields}
    return rows.select(*(values.get(name, F.lit(None)).cast(kind).alias(name) for name, kind in types.items()))


def known_column_positions() -> Column:
    """Returns the array of the positions in `_column_positions`."""
    entries = F.filter(F.map_values(COLUMN_POSITIONS), lambda entry: entry.isNotNull())
    return F.transform(entries, lambda entry: entry["position"])


def _as_befores(columns: Sequence[str]) -> Column:
    """Returns `_column_positions` of a carried state: an entry `before` for each known column, null for the others."""
    # A position between the delete and the record before it: it loses to the image before of the moving event itself,
    # and wins over a delete of the new key right before that.
    move_position = F.col(_AT)
    before_move = (
        move_position.withField("offset", move_position["offset"] - 1)
        .withField("partition", F.lit(_LAST))
        .cast(POSITION)
    )
    pairs: list[Column] = []
    for name in columns:
        has_entry = F.coalesce(F.map_contains_key(COLUMN_POSITIONS, name), F.lit(False))
        entry = F.col(COLUMN_POSITIONS)[name]
        told_position = F.when(has_entry, F.coalesce(entry["told"], entry["position"])).otherwise(
            F.col(POSITION_COLUMN)
        )
        moved_entry = F.struct(before_move.alias("position"), F.lit(True).alias("before"), told_position.alias("told"))
        pairs += [F.lit(name), F.when(~(has_entry & entry.isNull()), moved_entry)]
    return F.create_map(*pairs).cast(COLUMN_POSITIONS_TYPE)
