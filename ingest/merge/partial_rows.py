"""The join of states of one key, column by column: what merging means where an image may be partial.

A state is a row of `change`: an image, whole or partial, or a delete, at a position. `_column_positions` is null
where every column is as old as the row; else it says for the others:

| entry | the column's value |
|---|---|
| none | came with the event at the row's position |
| `{position, before: false}` | came with the earlier event at `position` |
| `{position, before: true}` | stood in the `before` of the event at `position`: any value that an event brought wins |
| `{position, before: true, told}` | stood in the row that moved here at `position`, which had it from that at `told` |
| null | is not known: the row is pending and is not shown |

A state with neither a position nor a delete is no image: its columns were carried over from another key
(`key_change`), and wait for theirs. Of what one move carried over at different times, as more of the old row came to be
known, what was told last counts.

    D      = highest position of a delete
    row    = highest position of an image; it exists if that is above D
    column = of the states above D that carry it, the value of the highest position

A value out of a `before` is forgotten once an event has brought one: should a delete that arrives late take that
away, the row waits for the whole image that the source sent after the delete.

Highest positions don't depend on order, repetition or batching, so neither does the join. Where all images are
whole it comes to one comparison per row (`compaction`, `merge`); this is the same for the rest.
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
    content,
    quoted,
)
from ingest.changelog.position import POSITION, comes_again, place
from ingest.internal_columns import LOCATION_TYPE
from ingest.merge.actions import ACTION, BURY, DELETE, INSERT, UPDATE

_ENTRY = T.StructType([T.StructField("key", T.StringType()), T.StructField("value", COLUMN_POSITION)])


DEAD, BURIES = "_dead", "_buries"
ROW, PENDING_ROW, TOMBSTONE = "_row", "_pending_row", "_tombstone"
"""What is stored of a key: its row in silver, its pending row, its tombstone. A struct of position, layers, content and
location."""
REMEMBERED = (ROW, PENDING_ROW, TOMBSTONE)
PENDING_ACTION = "_pending_action"
CARRIED = "_carried"
_CONTENT, _LAYERS = "_content", "_known"
"""Of a state, while it is held against what is stored."""
_STORED = T.StructType(
    [
        T.StructField("position", POSITION),
        T.StructField("layers", T.ArrayType(_ENTRY)),
        T.StructField("content", T.BinaryType()),
        T.StructField("location", LOCATION_TYPE),
    ]
)


def joined(states: DataFrame, key: Sequence[str], columns: Sequence[str], layered: Sequence[str]) -> DataFrame:
    """One state per key. `columns`: those of the table beside the key. `layered`: those of them of which any of the
    states has an entry in `_column_positions`. What is stored of the key (`remembered`) is handed on."""
    position, deleted = F.col(POSITION_COLUMN), F.col(DELETED)
    image = F.when(~deleted, position)
    plain = [c for c in columns if c not in layered]
    parts = [
        F.max(F.when(deleted, position)).alias(DEAD),
        F.max(image).alias("_alive"),
        F.max_by(F.struct(*map(quoted, plain), SOURCE_TS), image).alias("_plain"),
        F.coalesce(F.max_by(EVENT_ID, F.when(F.col(EVENT_ID).isNotNull(), position)), F.max(EVENT_ID)).alias(EVENT_ID),
        *(F.max(c).alias(c) for c in REMEMBERED),
    ]
    for number, name in enumerate(layered):
        entry = F.col(COLUMN_POSITIONS)[name]
        older = F.coalesce(F.map_contains_key(COLUMN_POSITIONS, name), F.lit(False))
        brought = F.when(deleted, position).otherwise(
            F.when(older, F.when(~entry["before"], entry["position"])).otherwise(position)
        )
        before = F.when(deleted, position).otherwise(F.when(older & entry["before"], entry["position"]))
        told = F.when(~deleted, entry["told"]).alias("told")
        # A delete takes part: where it is the highest, nothing of the column is left.
        value = F.struct(quoted(name).alias("value"), brought.alias("at"), deleted.alias("gone"))
        parts.append(F.max_by(value, brought).alias(f"_brought_{number}"))
        value = F.struct(quoted(name).alias("value"), before.alias("at"), deleted.alias("gone"), told)
        latest = F.when(before.isNotNull(), F.struct(before, F.coalesce(told, before)))
        parts.append(F.max_by(value, latest).alias(f"_before_{number}"))
    grouped = states.groupBy(*map(quoted, key)).agg(*parts)
    return _states(grouped, key, columns, layered)


def _states(grouped: DataFrame, key: Sequence[str], columns: Sequence[str], layered: Sequence[str]) -> DataFrame:
    alive, dead = F.col("_alive"), F.col(DEAD)
    exists = F.coalesce(alive.isNotNull() & (dead.isNull() | (alive > dead)), F.lit(False))
    nobody = F.lit(None).cast(POSITION).alias("told")
    values: dict[str, Column] = {}
    entries = []
    for number, name in enumerate(layered):
        brought, before = F.col(f"_brought_{number}"), F.col(f"_before_{number}")
        has, had = ~brought["gone"], ~before["gone"]
        values[name] = F.when(has, brought["value"]).when(had, before["value"])
        at = (
            F.when(has, F.struct(brought["at"].alias("position"), F.lit(False).alias("before"), nobody))
            .when(had, F.struct(before["at"].alias("position"), F.lit(True).alias("before"), before["told"]))
            .cast(COLUMN_POSITION)
        )
        differs = ~F.coalesce(has & (brought["at"] == alive), F.lit(False))
        entries.append(F.struct(differs.alias("differs"), F.lit(name).alias("name"), at.alias("at")))
    carried = ~exists & _any(~F.col(f"_before_{n}")["gone"] for n in range(len(layered)))
    listed = F.filter(F.array(*entries), lambda e: e["differs"])
    map_ = F.map_from_arrays(F.transform(listed, lambda e: e["name"]), F.transform(listed, lambda e: e["at"]))
    kept = [values[c].alias(c) if c in values else F.col("_plain").getField(c).alias(c) for c in columns]
    return grouped.select(
        *map(quoted, key),
        *kept,
        F.when(~carried, F.greatest(alive, dead)).alias(POSITION_COLUMN),
        (~exists).alias(DELETED),
        F.col("_plain")[SOURCE_TS].alias(SOURCE_TS),
        F.when((exists | carried) & (F.size(listed) > 0), map_).cast(COLUMN_POSITIONS_TYPE).alias(COLUMN_POSITIONS),
        dead.alias(DEAD),
        carried.alias(CARRIED),
        EVENT_ID,
        *REMEMBERED,
    )


def _any(flags: Iterable[Column]) -> Column:
    found = list(flags)
    # One array, and no chain of as many links as a wide table has columns: Spark walks a chain by recursion.
    return F.coalesce(F.array_contains(F.array(*found), True), F.lit(False)) if found else F.lit(False)


def remembered(kind: str | None, columns: Sequence[str], location: Column | None = None) -> list[Column]:
    """The columns `REMEMBERED` of a state: all null for an event (`kind` None), else one that tells what is stored."""
    here = F.struct(
        F.col(POSITION_COLUMN).alias("position"),
        _layers().alias("layers"),
        content(columns).alias("content"),
        (F.lit(None).cast(LOCATION_TYPE) if location is None else location).alias("location"),
    ).cast(_STORED)
    return [(here if k == kind else F.lit(None).cast(_STORED)).alias(k) for k in REMEMBERED]


def with_actions(states: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Joined states with `_action` (on silver; `bury` where only a tombstone is new) and `_pending_action`. `columns`:
    those of the table."""
    complete = ~F.coalesce(F.exists(F.map_values(COLUMN_POSITIONS), lambda v: v.isNull()), F.lit(False))
    row, waiting = F.col(ROW), F.col(PENDING_ROW)

    def action(shown: Column, stored: Column) -> Column:
        same = F.col(POSITION_COLUMN).eqNullSafe(stored["position"]) & F.col(_LAYERS).eqNullSafe(stored["layers"])
        same = same | _doubled(stored)
        return (
            F.when(shown & stored.isNull(), INSERT)
            .when(shown & ~same, UPDATE)
            .when(~shown & stored.isNotNull(), DELETE)
        )

    dead, grave = F.col(DEAD), F.col(TOMBSTONE)["position"]
    new_grave = dead.isNotNull() & (grave.isNull() | ((dead > grave) & ~comes_again(dead, grave)))
    on_silver = action(~F.col(DELETED) & complete, row)
    # Columns of their own: written down in each comparison, the code of a table's columns would come ten times.
    compared = states.withColumns({_CONTENT: content(columns), _LAYERS: _layers().cast(T.ArrayType(_ENTRY))})
    return compared.withColumns(
        {
            ACTION: F.coalesce(on_silver, F.when(new_grave, BURY)),
            PENDING_ACTION: action((~F.col(DELETED) & ~complete) | F.col(CARRIED), waiting),
            BURIES: new_grave,
        }
    ).drop(_CONTENT, _LAYERS)


def _layers() -> Column:
    """The positions of a state's single columns, by name."""
    return F.array_sort(F.map_entries(COLUMN_POSITIONS))


def _doubled(stored: Column) -> Column:
    """Whether a state is what is stored, but for the place in the transport where it was delivered once more."""

    def layers(of: Column) -> Column:
        return F.transform(
            of,
            lambda e: F.struct(
                e["key"], place(e["value"]["position"]), e["value"]["before"], place(e["value"]["told"])
            ),
        )

    again = comes_again(F.col(POSITION_COLUMN), stored["position"]) & (F.col(_CONTENT) == stored["content"])
    return F.coalesce(again & layers(F.col(_LAYERS)).eqNullSafe(layers(stored["layers"])), F.lit(False))


def above(rows: DataFrame, floor: Column | None) -> DataFrame:
    """Stored rows without the columns that a truncate at `floor` took away: those are not known any more."""
    if floor is None:
        return rows
    kept = F.transform_values(
        COLUMN_POSITIONS, lambda _, at: F.when(F.coalesce(at["told"], at["position"]) > floor, at)
    )
    return rows.withColumn(COLUMN_POSITIONS, kept)
