"""Builds the versions of rows (a slowly changing dimension of type 2): each state of a row with its validity interval.

The facts of a key are ordered by position: an image begins a version, and the next image or delete ends it. Columns
that a partial image lacks come from earlier facts, back to the last delete, by the rules of `partial_rows`. A version
with an unknown column is left out. A late event changes the versions to those that its timely arrival would have made.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ingest.changelog.change import COLUMN_POSITIONS, DELETED, POSITION_COLUMN, SOURCE_TS, quoted
from ingest.changelog.position import is_same_source_position
from ingest.merge.key_changes import known_column_positions

VALID_FROM, VALID_TO, UNTIL = "_valid_from", "_valid_to", "_until"
"""Columns: source times of the version and of the change that ended it, and the position of the latter. `_valid_to` and
`_until` are null for the current version."""

_AT, _DELETES_BEFORE, _NEXT = "_ingest_at", "_ingest_deletes_before", "_ingest_next"


def row_versions(
    facts: DataFrame, key: Sequence[str], columns: Sequence[str], partial_columns: Sequence[str]
) -> DataFrame:
    """Returns one row per version: key columns, `columns`, `_position`, `_until`, `_valid_from`, `_valid_to`.

    `facts`: all facts of the keys, in the form of `partial_rows.join_states`. `columns`: those other than the key's.
    `partial_columns`: those of them that have an entry in `_column_positions` of any fact.
    """
    named = [quoted(k) for k in key]
    fact_position = F.coalesce(F.col(POSITION_COLUMN), F.array_max(known_column_positions()))
    following = Window.partitionBy(*named).orderBy(F.desc(_AT)).rowsBetween(Window.unboundedPreceding, -1)
    delete_count = F.sum(F.col(DELETED).cast("int")).over(Window.partitionBy(*named).orderBy(_AT))
    # Values that a key change carried over have no position and end no version.
    own_end = F.when(F.col(POSITION_COLUMN).isNotNull(), F.struct(POSITION_COLUMN, SOURCE_TS))
    rows = facts.withColumn(_AT, fact_position)
    rows = rows.withColumns({_NEXT: F.last(own_end, ignorenulls=True).over(following), _DELETES_BEFORE: delete_count})
    between_deletes = Window.partitionBy(*named, _DELETES_BEFORE).orderBy(_AT)
    value_columns = {name: f"_ingest_lasting_{n}" for n, name in enumerate(partial_columns)}
    for name, column in value_columns.items():
        brought, before = (F.last(value, ignorenulls=True).over(between_deletes) for value in _after_and_before(name))
        rows = rows.withColumn(column, F.coalesce(brought, before))
    # A version at the source position of its successor is a duplicate delivery, or was valid for no time.
    has_duration = ~is_same_source_position(F.col(_NEXT)[POSITION_COLUMN], F.col(POSITION_COLUMN))
    complete = ~F.col(DELETED) & F.col(POSITION_COLUMN).isNotNull() & has_duration
    if value_columns:
        complete = complete & ~F.array_contains(
            F.array(*(F.col(column).isNull() for column in value_columns.values())), True
        )
    return rows.where(complete).select(
        *named,
        *(F.col(value_columns[c])["value"].alias(c) if c in value_columns else quoted(c) for c in columns),
        POSITION_COLUMN,
        F.col(_NEXT)[POSITION_COLUMN].alias(UNTIL),
        F.col(SOURCE_TS).alias(VALID_FROM),
        # The time of the change that ended the version may be unknown: the version must not look current.
        F.when(F.col(_NEXT).isNotNull(), F.coalesce(F.col(_NEXT)[SOURCE_TS], SOURCE_TS)).alias(VALID_TO),
    )


def _after_and_before(name: str) -> tuple[Column, Column]:
    """Returns a column's value from the image after, and from the image before; each a struct `value`, or null."""
    older = F.coalesce(F.map_contains_key(COLUMN_POSITIONS, name), F.lit(False))
    value = F.struct(quoted(name).alias("value"))
    brought = F.when(~F.col(DELETED) & ~older, value)
    return brought, F.when(older & F.col(COLUMN_POSITIONS)[name]["before"], value)
