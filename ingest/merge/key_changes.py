"""A row whose key changes: what it held under the old key goes with it to the new one.

The source sends a delete of the old key, which names the new one (`__debezium.newkey`), and a create under the new
key. The create says nothing of a value that the source did not touch; that value is the old row's, as it was right
before the delete. So the delete carries it over: a state of the new key that is no image, only a `before` (`joining`).
Batches may come between the two; then it waits in the pending table, without a position of its own.

What the row held may also be told after it has moved: by an older event that arrives late. Then it is carried over
once more, along the move that the old key's tombstone remembers (`_moved_to`), and what was told last counts.

A row that moves to a key also tells that nothing was there right before: the new key is dead below the position of the
move, whether or not its own delete has come yet.
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
from ingest.merge.partial_rows import CARRIED, joined

HEADER = "__debezium.newkey"
_AT, _TARGET = "_at", "_target"
_LAST = 2**31 - 1
"""A partition after all others."""


def names_new_key() -> Column:
    """Whether an event's headers name a new key."""
    return F.coalesce(F.exists("headers", lambda h: h["key"] == HEADER), F.lit(False))


def new_key_text() -> Column:
    """What the header says: a key, as the record of the new row has it."""
    said = F.filter("headers", lambda h: h["key"] == HEADER)
    return F.try_element_at(said, F.lit(1))["value"].cast("string")


def with_carried(facts: DataFrame, key: Sequence[str], columns: Sequence[str]) -> DataFrame:
    """States of keys (as `joined` takes them, some with a `_new_key`), and those that moves carry over to new keys.

    A row may move on within a batch: what it carried then follows from what was carried to it, one step a round."""
    facts = facts.unionByName(_vacated(facts, key))
    everything, known = facts, 0
    said = F.xxhash64(*map(quoted, key), F.array_sort(F.map_entries(COLUMN_POSITIONS)))
    while True:
        carried = _carried(everything, facts, key, columns).localCheckpoint()
        told = carried.agg(F.sum(said.cast("decimal(20,0)"))).first()
        now = (told[0] if told else None) or 0
        everything = facts.unionByName(carried)
        if now == known:
            return everything
        known = now


def _carried(everything: DataFrame, facts: DataFrame, key: Sequence[str], columns: Sequence[str]) -> DataFrame:
    moves = facts.where(F.col(NEW_KEY).isNotNull() & F.col(DELETED))
    moves = moves.select(*map(quoted, key), F.col(POSITION_COLUMN).alias(_AT), F.col(NEW_KEY).alias(_TARGET))
    own = F.coalesce(F.col(POSITION_COLUMN), F.array_max(known_positions()))
    earlier = joined_by_key(everything, F.broadcast(moves), key).where(own < F.col(_AT))
    # What was carried to a row goes on with it, though its own image may not have come, or have gone on already.
    states = joined(earlier, [*key, _AT, _TARGET], columns, columns).where(~F.col(DELETED) | F.col(CARRIED))
    values = {c: quoted(c) for c in columns} | {k: F.col(_TARGET)[k] for k in key}
    said = {DELETED: F.lit(False), COLUMN_POSITIONS: _as_befores(columns), EVENT_ID: F.col(EVENT_ID)}
    return like(facts, states, values | said)


def _vacated(facts: DataFrame, key: Sequence[str]) -> DataFrame:
    """Deletes of the keys to which rows move, below whatever stands at the position of the move."""
    at = F.col(POSITION_COLUMN)
    for name, lowest in {"streamed": 0, "offset": -1, "partition": -1}.items():
        at = at.withField(name, F.lit(lowest))
    said = {k: F.col(NEW_KEY)[k] for k in key} | {DELETED: F.lit(True), POSITION_COLUMN: at}
    return like(facts, facts.where(F.col(NEW_KEY).isNotNull()), said | {SOURCE_TS: F.col(SOURCE_TS)})


def like(facts: DataFrame, rows: DataFrame, said: Mapping[str, Column]) -> DataFrame:
    """`rows` with the columns of `facts`: those that are `said`, and nothing in the others."""
    types = {f.name: f.dataType for f in facts.schema.fields}
    return rows.select(*(said.get(name, F.lit(None)).cast(kind).alias(name) for name, kind in types.items()))


def known_positions() -> Column:
    """Those at which a state's older columns were told."""
    at = F.filter(F.map_values(COLUMN_POSITIONS), lambda entry: entry.isNotNull())
    return F.transform(at, lambda entry: entry["position"])


def _as_befores(columns: Sequence[str]) -> Column:
    """Of all columns: they stood in the row right before it moved, or are not known."""
    # Between the delete and the record before it: an image before that the moving event itself brought counts for
    # more, and a delete of the new key right before it for less.
    at = F.col(_AT)
    moved = at.withField("offset", at["offset"] - 1).withField("partition", F.lit(_LAST)).cast(POSITION)
    pairs: list[Column] = []
    for name in columns:
        layered = F.coalesce(F.map_contains_key(COLUMN_POSITIONS, name), F.lit(False))
        stood = F.col(COLUMN_POSITIONS)[name]
        told = F.when(layered, F.coalesce(stood["told"], stood["position"])).otherwise(F.col(POSITION_COLUMN))
        entry = F.struct(moved.alias("position"), F.lit(True).alias("before"), told.alias("told"))
        pairs += [F.lit(name), F.when(~(layered & stood.isNull()), entry)]
    return F.create_map(*pairs).cast(COLUMN_POSITIONS_TYPE)
