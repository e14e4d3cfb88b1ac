"""Joins the states of a key column by column: the merge of images that may be partial.

A state is a change (`changelog.change`): an image, whole or partial, or a delete, at a position. `_column_positions` is
null if every column has the row's position; else it has entries for the others:

| entry | the column's value |
|---|---|
| none | of the event at the row's position |
| `{position, before: false}` | of the earlier event at `position` |
| `{position, before: true}` | from the `before` of the event at `position`; loses to any value from an image after |
| `{position, before: true, told}` | of the row that moved here at `position`, which had it from the event at `told` |
| null | unknown: the row is pending and not shown |

A state with neither a position nor a delete is no image: its columns were carried over from another key
(`key_changes`) and wait for the image of theirs. Of values that one move carried over repeatedly, as more of the old
row became known, the one of the highest `told` wins.

    D      = highest position of a delete
    row    = highest position of an image; it exists if that is above D
    column = of the states above D that carry it, the value of the highest position

A value from a `before` is dropped once an image after has one. If a late delete then removes the latter, the row waits
for the whole image that the source sent after the delete.

Maxima depend neither on order nor on repetition nor on batching, so neither does the join. For whole images it reduces
to one comparison per row (`compaction`, `actions`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.change import (
    COLUMN_POSITION,
    COLUMN_POSITIONS,
    COLUMN_POSITIONS_TYPE,
    DELETED,
    EVENT_ID,
    POSITION_COLUMN,
    SOURCE_TS,
    content_hash,
    quoted,
)
from ingest.changelog.position import POSITION, is_same_source_position, source_position
from ingest.internal_columns import LOCATION_TYPE
from ingest.merge.actions import ACTION, DELETE, INSERT, UPDATE, WRITE_TOMBSTONE

_ENTRY = T.StructType([T.StructField("key", T.StringType()), T.StructField("value", COLUMN_POSITION)])


DELETE_POSITION, NEEDS_TOMBSTONE = "_ingest_delete_position", "_ingest_needs_tombstone"
ROW, PENDING_ROW, TOMBSTONE = "_ingest_stored_row", "_ingest_stored_pending_row", "_ingest_stored_tombstone"
"""Columns for what is stored of a key: its row in silver, its pending row, its tombstone. Each a struct of position,
layers (column positions), content (hash) and location, or null."""
STORED = (ROW, PENDING_ROW, TOMBSTONE)
PENDING_ACTION = "_ingest_pending_action"
CARRIED = "_ingest_carried"
_CONTENT, _LAYERS = "_ingest_content", "_ingest_layers"
"""Temporary columns: hash and column positions of a state, for the comparison with those stored."""
_STORED = T.StructType(
    [
        T.StructField("position", POSITION),
        T.StructField("layers", T.ArrayType(_ENTRY)),
        T.StructField("content", T.BinaryType()),
        T.StructField("location", LOCATION_TYPE),
    ]
)


def join_states(
    states: DataFrame, key: Sequence[str], columns: Sequence[str], partial_columns: Sequence[str]
) -> DataFrame:
    """Returns the join of the states of each key: one row per key, with the columns of a change, `DELETE_POSITION`
    (highest position of a delete), `_ingest_carried` (true: no image, only values that a move carried over) and those
    of `stored_columns`.

    `columns`: those of the table other than the key's. `partial_columns`: those of them that have an entry in
    `_column_positions` of any state.
    """
    position, deleted = F.col(POSITION_COLUMN), F.col(DELETED)
    image = F.when(~deleted, position)
    plain = [c for c in columns if c not in partial_columns]
    parts = [
        F.max(F.when(deleted, position)).alias(DELETE_POSITION),
        F.max(image).alias("_ingest_alive"),
        F.max_by(F.struct(*map(quoted, plain), SOURCE_TS), image).alias("_ingest_plain"),
        F.coalesce(F.max_by(EVENT_ID, F.when(F.col(EVENT_ID).isNotNull(), position)), F.max(EVENT_ID)).alias(EVENT_ID),
        *(F.max(c).alias(c) for c in STORED),
    ]
    for number, name in enumerate(partial_columns):
        entry = F.col(COLUMN_POSITIONS)[name]
        older = F.coalesce(F.map_contains_key(COLUMN_POSITIONS, name), F.lit(False))
        brought = F.when(deleted, position).otherwise(
            F.when(older, F.when(~entry["before"], entry["position"])).otherwise(position)
        )
        before = F.when(deleted, position).otherwise(F.when(older & entry["before"], entry["position"]))
        told_position = F.when(~deleted, entry["told"]).alias("told")
        # Deletes take part: if one has the highest position, the column has no value.
        value = F.struct(quoted(name).alias("value"), brought.alias("at"), deleted.alias("gone"))
        parts.append(F.max_by(value, brought).alias(f"_ingest_brought_{number}"))
        value = F.struct(quoted(name).alias("value"), before.alias("at"), deleted.alias("gone"), told_position)
        order = F.when(before.isNotNull(), F.struct(before, F.coalesce(told_position, before)))
        parts.append(F.max_by(value, order).alias(f"_ingest_before_{number}"))
    grouped = states.groupBy(*map(quoted, key)).agg(*parts)
    return _states(grouped, key, columns, partial_columns)


def _states(
    grouped: DataFrame, key: Sequence[str], columns: Sequence[str], partial_columns: Sequence[str]
) -> DataFrame:
    image_position, delete_position = F.col("_ingest_alive"), F.col(DELETE_POSITION)
    exists = F.coalesce(
        image_position.isNotNull() & (delete_position.isNull() | (image_position > delete_position)), F.lit(False)
    )
    no_told = F.lit(None).cast(POSITION).alias("told")
    values: dict[str, Column] = {}
    entries = []
    for number, name in enumerate(partial_columns):
        brought, before = F.col(f"_ingest_brought_{number}"), F.col(f"_ingest_before_{number}")
        has_after, has_before = ~brought["gone"], ~before["gone"]
        values[name] = F.when(has_after, brought["value"]).when(has_before, before["value"])
        at = (
            F.when(has_after, F.struct(brought["at"].alias("position"), F.lit(False).alias("before"), no_told))
            .when(has_before, F.struct(before["at"].alias("position"), F.lit(True).alias("before"), before["told"]))
            .cast(COLUMN_POSITION)
        )
        differs = ~F.coalesce(has_after & (brought["at"] == image_position), F.lit(False))
        entries.append(F.struct(differs.alias("differs"), F.lit(name).alias("name"), at.alias("at")))
    carried = ~exists & _any(~F.col(f"_ingest_before_{n}")["gone"] for n in range(len(partial_columns)))
    older = F.filter(F.array(*entries), lambda e: e["differs"])
    positions = F.map_from_arrays(F.transform(older, lambda e: e["name"]), F.transform(older, lambda e: e["at"]))
    column_values = [
        values[c].alias(c) if c in values else F.col("_ingest_plain").getField(c).alias(c) for c in columns
    ]
    return grouped.select(
        *map(quoted, key),
        *column_values,
        F.when(~carried, F.greatest(image_position, delete_position)).alias(POSITION_COLUMN),
        (~exists).alias(DELETED),
        F.col("_ingest_plain")[SOURCE_TS].alias(SOURCE_TS),
        F.when((exists | carried) & (F.size(older) > 0), positions).cast(COLUMN_POSITIONS_TYPE).alias(COLUMN_POSITIONS),
        delete_position.alias(DELETE_POSITION),
        carried.alias(CARRIED),
        EVENT_ID,
        *STORED,
    )


def _any(flags: Iterable[Column]) -> Column:
    found = list(flags)
    # One array instead of a chain of ORs, which Spark walks by recursion: a wide table would overflow the stack.
    return F.coalesce(F.array_contains(F.array(*found), True), F.lit(False)) if found else F.lit(False)


def stored_columns(kind: str | None, columns: Sequence[str], location: Column | None = None) -> list[Column]:
    """Returns the columns `STORED` of a state: the one named `kind` describes the stored row, the others are null.

    `kind`: None for an event. `columns`: those that count for the content. `location`: that of the row, if it has one.
    """
    description = F.struct(
        F.col(POSITION_COLUMN).alias("position"),
        _layers().alias("layers"),
        content_hash(columns).alias("content"),
        (F.lit(None).cast(LOCATION_TYPE) if location is None else location).alias("location"),
    ).cast(_STORED)
    return [(description if k == kind else F.lit(None).cast(_STORED)).alias(k) for k in STORED]


def with_partial_row_actions(states: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Returns joined states with `_ingest_action` (on silver; `write-tombstone`: only a tombstone is new),
    `_ingest_pending_action` (on the pending table) and `_ingest_needs_tombstone` (true: a tombstone has to be written).
    `columns`: all of the table."""
    complete = ~F.coalesce(F.exists(F.map_values(COLUMN_POSITIONS), lambda v: v.isNull()), F.lit(False))
    row, pending_row = F.col(ROW), F.col(PENDING_ROW)

    def action(exists_there: Column, stored: Column) -> Column:
        is_same = F.col(POSITION_COLUMN).eqNullSafe(stored["position"]) & F.col(_LAYERS).eqNullSafe(stored["layers"])
        # Below its own tombstone a stored row would count as deleted.
        is_deleted_before = F.coalesce(delete_position > stored["position"], F.lit(False))
        is_same = is_same | (_is_duplicate(stored) & ~is_deleted_before)
        return (
            F.when(exists_there & stored.isNull(), INSERT)
            .when(exists_there & ~is_same, UPDATE)
            .when(~exists_there & stored.isNotNull(), DELETE)
        )

    delete_position, tombstone_position = F.col(DELETE_POSITION), F.col(TOMBSTONE)["position"]
    needs_tombstone = delete_position.isNotNull() & (
        tombstone_position.isNull()
        | ((delete_position > tombstone_position) & ~is_same_source_position(delete_position, tombstone_position))
    )
    on_silver = action(~F.col(DELETED) & complete, row)
    # Computed as columns: inlined into each comparison, the code for all columns of the table would be generated ten
    # times.
    compared = states.withColumns({_CONTENT: content_hash(columns), _LAYERS: _layers().cast(T.ArrayType(_ENTRY))})
    return compared.withColumns(
        {
            ACTION: F.coalesce(on_silver, F.when(needs_tombstone, WRITE_TOMBSTONE)),
            PENDING_ACTION: action((~F.col(DELETED) & ~complete) | F.col(CARRIED), pending_row),
            NEEDS_TOMBSTONE: needs_tombstone,
        }
    ).drop(_CONTENT, _LAYERS)


def _layers() -> Column:
    """Returns the entries of `_column_positions`, sorted by name."""
    return F.array_sort(F.map_entries(COLUMN_POSITIONS))


def _is_duplicate(stored: Column) -> Column:
    """Returns true if a state equals the stored one except for transport coordinates: a duplicate delivery."""

    def layers(of: Column) -> Column:
        return F.transform(
            of,
            lambda e: F.struct(
                e["key"],
                source_position(e["value"]["position"]),
                e["value"]["before"],
                source_position(e["value"]["told"]),
            ),
        )

    is_same_event = is_same_source_position(F.col(POSITION_COLUMN), stored["position"]) & (
        F.col(_CONTENT) == stored["content"]
    )
    return F.coalesce(is_same_event & layers(F.col(_LAYERS)).eqNullSafe(layers(stored["layers"])), F.lit(False))


def without_truncated(rows: DataFrame, floor: Column | None) -> DataFrame:
    """Returns stored rows in which columns at or below `floor`, the position of a truncate, are unknown."""
    if floor is None:
        return rows
    remaining = F.transform_values(
        COLUMN_POSITIONS, lambda _, at: F.when(F.coalesce(at["told"], at["position"]) > floor, at)
    )
    return rows.withColumn(COLUMN_POSITIONS, remaining)
