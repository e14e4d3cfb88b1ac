"""Chooses the action of each whole-row change: insert, update, delete, write a tombstone, refuse, or none.

The highest position decides the state of a key:

    row exists  ⇔  position of its newest image  >  D
    D           =   highest position of a delete of the key, or of a truncate of its table

A batch is compacted first: one state per key, an image or a delete at a position. It takes effect if its position is
above those of the key's row in silver, of its tombstone and of the last truncate. Otherwise it is late or a duplicate
and changes nothing. So the result depends on no batching, order or repetition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest.changelog.change import CODE, DELETED, POSITION_COLUMN, REASON, quoted
from ingest.changelog.position import POSITION, is_same_source_position
from ingest.merge.key_join import joined_by_key
from ingest.merge.table_schema import KeyTypes
from ingest.values.exact_cast import exact_cast
from ingest.values.postgres_cast import Cast
from ingest.values.render import LOSSLESS_JSON
from ingest.values.types import LogicalType

TOMBSTONE_KEY = "_ingest_tombstone_key"
OLDER_THAN_HORIZON = "older-than-horizon"
_FORGOTTEN = "tombstones this old have been forgotten: whether the key was deleted since can't be known"
ACTION = "_ingest_action"
TIED = "_ingest_tied"
INSERT, UPDATE, DELETE, WRITE_TOMBSTONE, REFUSE = "insert", "update", "delete", "write-tombstone", "refuse"
"""Values of `_ingest_action`. `write-tombstone`: a delete of a key without a row. `refuse`: the
change can't be applied and goes to quarantine."""


def tombstone_key(key: Sequence[str], types: KeyTypes = ()) -> Column:
    """Returns the SHA-256 of the key columns' JSON, as binary: a tombstone stores no value of the key. `types`: of
    columns whose type has changed; their values have the JSON of the first type that holds them."""
    return _tombstone_key(tuple(key), types)


@lru_cache(maxsize=512)
def _tombstone_key(key: tuple[str, ...], types: KeyTypes) -> Column:
    return tombstone_key_of({c: quoted(c) for c in key}, types)


def tombstone_key_of(values: Mapping[str, Column], types: KeyTypes = ()) -> Column:
    """Returns `tombstone_key` of the given values of the key columns."""
    names = {column: name for column, _, name in types}
    changed = {name: of_column for column, of_column, name in types if column in values}
    values = {names.get(column, column): value for column, value in values.items()}
    json = _json(values) if not changed else _json_of_first_types(values, changed)
    return F.unhex(F.sha2(json, 256))


def _json(values: Mapping[str, Column]) -> Column:
    return F.to_json(F.struct(*(value.alias(name) for name, value in values.items())), LOSSLESS_JSON)


def _json_of_first_types(values: Mapping[str, Column], types: Mapping[str, Sequence[LogicalType]]) -> Column:
    """Returns the JSON that `_json` had before types changed, of values that these types hold."""
    members = []
    for name, value in values.items():
        *former, current = types.get(name, (None,))
        exact = [exact_cast(value, Cast(current, type_)) for type_ in former if type_ is not None and current]
        found = [F.when(one.isNotNull(), _json({name: one})) for one in exact]
        member = F.coalesce(*found, _json({name: value}))
        members.append(F.substring(member, F.lit(2), F.length(member) - 2))
    return F.concat(F.lit("{"), F.concat_ws(",", *members), F.lit("}"))


def refuse_below_horizon(states: DataFrame, position: Column, nothing_known: Column, horizon: Column) -> DataFrame:
    """Returns `states`, where images below the gc horizon of keys with neither row nor tombstone get `_ingest_code` and
    `_ingest_reason`: a tombstone that would forbid them may have been collected.

    `position`: that of the state. `nothing_known`: true if the key has neither row nor tombstone.
    """
    is_too_old = F.col(CODE).isNull() & ~F.col(DELETED) & nothing_known & (position < horizon)
    refusal = {CODE: OLDER_THAN_HORIZON, REASON: _FORGOTTEN}
    return states.withColumns(
        {name: F.when(is_too_old, F.lit(text)).otherwise(F.col(name)) for name, text in refusal.items()}
    )


def with_whole_row_actions(
    states: DataFrame,
    rows: DataFrame | None,
    tombstones: DataFrame | None,
    key: Sequence[str],
    horizon: Column | None = None,
) -> DataFrame:
    """Returns `states` with `_ingest_action` (null: late or a duplicate) and `_ingest_tied` (true: an update at the
    source position of the stored row, which is a duplicate delivery if their columns are equal).

    `states`: compacted changes. `rows`, `tombstones`: what is stored of at least the keys of `states`, at most one row
    per key, or None if there is nothing; columns: those of the key, or their hash `TOMBSTONE_KEY`, and `_position`;
    other columns are passed on. `horizon`: tombstones below this position may have been collected.
    """
    with_actions = states
    for name, stored in (("_ingest_row_position", rows), ("_ingest_tombstone_position", tombstones)):
        if stored is None:
            with_actions = with_actions.withColumn(name, F.lit(None).cast(POSITION))
        else:
            join_columns = [TOMBSTONE_KEY] if TOMBSTONE_KEY in stored.columns else list(key)
            other_columns = (quoted(c) for c in stored.columns if c not in join_columns and c != POSITION_COLUMN)
            positions = stored.select(*map(quoted, join_columns), F.col(POSITION_COLUMN).alias(name), *other_columns)
            with_actions = joined_by_key(with_actions, positions, join_columns, "left")
    if horizon is not None:
        nothing_known = F.col("_ingest_row_position").isNull() & F.col("_ingest_tombstone_position").isNull()
        with_actions = refuse_below_horizon(with_actions, F.col(POSITION_COLUMN), nothing_known, horizon)
    return with_actions.withColumns(_action_columns()).drop("_ingest_row_position", "_ingest_tombstone_position")


@cache
def _action_columns() -> dict[str, Column]:
    """Returns `_ingest_action` and `_ingest_tied`, computed from the positions of a state, of the stored row and
    of the tombstone, `_deleted` and `_ingest_code`.

    Positions are compared outside of CASE branches: Spark eliminates no common subexpressions inside them. Cached,
    since building the columns takes longer than a small batch.
    """
    position, row, tombstone, deleted = (
        F.col(c) for c in (POSITION_COLUMN, "_ingest_row_position", "_ingest_tombstone_position", DELETED)
    )
    above_row, above_tombstone = (F.coalesce(position > stored, F.lit(True)) for stored in (row, tombstone))
    has_row = row.isNotNull()
    # Tombstones are written before rows are removed. A row at or below its tombstone was left by a crash between the
    # two, and the replayed delete must still remove it.
    is_left_behind = F.coalesce(row <= tombstone, F.lit(False))
    is_duplicate = deleted & ~has_row & is_same_source_position(position, tombstone)
    is_newest = above_row & above_tombstone & ~is_duplicate
    takes_effect = F.col(CODE).isNull() & (is_newest | (deleted & has_row & (above_row | is_left_behind)))
    on_delete, on_image = F.when(has_row, DELETE).otherwise(WRITE_TOMBSTONE), F.when(has_row, UPDATE).otherwise(INSERT)
    action = F.when(takes_effect, F.when(deleted, on_delete).otherwise(on_image)).when(F.col(CODE).isNotNull(), REFUSE)
    return {ACTION: action, TIED: takes_effect & ~deleted & is_same_source_position(position, row)}
