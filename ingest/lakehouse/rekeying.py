"""Changes the key of a stored table: the columns that tell its rows apart."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ingest.changelog.change import COLUMN_POSITIONS, POSITION_COLUMN, content_hash, quoted
from ingest.lakehouse.row_changes import RowChanges
from ingest.lakehouse.silver import Silver
from ingest.lakehouse.tombstones import Tombstones
from ingest.merge.actions import ACTION, INSERT, TOMBSTONE_KEY, tombstone_key
from ingest.merge.key_facts import carriers, is_newest, is_unknown, row_id
from ingest.merge.table_schema import TableSchema

_IN_SILVER, _IS_SHOWN, _ROW_POSITION = "_ingest_in_silver", "_ingest_is_shown", "_ingest_row_position"
_log = logging.getLogger(__name__)


class KeyedTable(Protocol):
    """The stored tables of one source table, as `reconcile.TableState` has them."""

    @property
    def silver(self) -> Silver: ...
    @property
    def pending(self) -> Silver: ...
    @property
    def tombstones(self) -> Tombstones: ...


def rekey(
    stored: KeyedTable,
    before: TableSchema,
    after: TableSchema,
    former: Sequence[tuple[str, ...]],
    required: Sequence[str] = (),
    dropped: Sequence[str] = (),
) -> None:
    """Brings a table from the key of `before` to that of `after`, and to the revision of `after`.

    First each row leaves a tombstone of its old key at its position, so that late events of that key are judged as
    before. Then silver is rewritten, sorted by the new key. Of rows with equal values in it the newest one is shown;
    the others wait in the pending table; rows whose new key is not known stay, which is logged. Repeated after a crash
    it does the rest. `former`: other keys that events have carried. `required`: columns of the new key that are NOT
    NULL. `dropped`: columns that are gone, which are null in a table without a key."""
    if not stored.silver.exists():
        return
    if not before.key:
        _give_key(stored, after)
        return
    rows = _rows(stored)
    stored.tombstones.write(_old_facts(rows, stored, before, former))
    if not after.key:
        _take_key(stored, after, dropped)
        return
    if required:
        log_unknown_keys(rows, after, required)
    if not stored.pending.exists() and _is_unique(rows, after.key, required):
        stored.silver.rekey(stored.silver.rows(), after, changed=False)
        return
    ranked = _once(rows, after).withColumn(_IS_SHOWN, is_newest(after.key, required)).localCheckpoint()
    hidden = ranked.where(F.col(_IN_SILVER) & ~F.col(_IS_SHOWN))
    changed = not ranked.where(F.col(_IN_SILVER) != F.col(_IS_SHOWN)).isEmpty()
    count = hidden.count()
    if count:
        states = hidden.withColumn(ACTION, F.lit(INSERT))
        stored.pending.apply(RowChanges(states, frozenset({INSERT}), frozenset(), count), after, {})
    stored.silver.rekey(ranked.where(_IS_SHOWN), after, changed)
    # Without those that silver shows now.
    positions = ranked.where(_IS_SHOWN).select(POSITION_COLUMN)
    waiting = stored.pending.rows()
    shown = waiting.where(is_complete()).join(positions, POSITION_COLUMN, "left_semi").select(POSITION_COLUMN)
    stored.pending.rekey(waiting.join(shown, POSITION_COLUMN, "left_anti"), after, changed=True)


def _give_key(stored: KeyedTable, after: TableSchema) -> None:
    """Brings a table without a key to that of `after`. Each row that an image before has still to remove leaves a
    tombstone, since the source's rows can be told apart by the key. Of rows with equal values in it the newest one
    stays. Repeated after a crash it does the rest."""
    rows, waiting = stored.silver.rows(), stored.pending.rows() if stored.pending.exists() else None
    if waiting is not None and not waiting.isEmpty():
        hashed = tombstone_key(after.key).alias(TOMBSTONE_KEY)
        newest = _unsettled(waiting, after).groupBy(hashed).agg(F.max(POSITION_COLUMN).alias(POSITION_COLUMN))
        at = rows.groupBy(hashed).agg(F.max(POSITION_COLUMN).alias(_ROW_POSITION))
        is_newer = F.col(_ROW_POSITION).isNull() | (F.col(POSITION_COLUMN) > F.col(_ROW_POSITION))
        stored.tombstones.write(newest.join(at, TOMBSTONE_KEY, "left").where(is_newer).drop(_ROW_POSITION))
    ranked = rows.withColumn(_IS_SHOWN, is_newest(after.key)).localCheckpoint()
    hidden = ranked.where(~F.col(_IS_SHOWN)).count()
    if hidden:
        _log.warning(
            "%s: %d rows have the same values in the new key (%s) as newer ones, and are removed: if the source still "
            "has them, read the table again (ingest resync PIPELINE TABLE)",
            *(after.table, hidden, ", ".join(after.key)),
        )
    stored.silver.rekey(ranked.where(_IS_SHOWN).drop(_IS_SHOWN), after, changed=bool(hidden))
    if waiting is not None:
        stored.pending.rekey(waiting.limit(0), after, changed=True)


def _unsettled(waiting: DataFrame, table_schema: TableSchema) -> DataFrame:
    """Returns the pending removals of a table without a key that have still to remove a row. The others wait beside a
    row that they have removed, which has `COLUMN_POSITIONS`."""
    is_row, content = F.col(COLUMN_POSITIONS).isNotNull(), content_hash(table_schema.names)
    number = F.row_number().over(Window.partitionBy(content, is_row).orderBy(POSITION_COLUMN))
    removed = F.sum(is_row.cast("long")).over(Window.partitionBy(content))
    numbered = waiting.withColumns({"_ingest_number": number, "_ingest_removed": removed})
    return numbered.where(~is_row & (F.col("_ingest_number") > F.col("_ingest_removed")))


def _take_key(stored: KeyedTable, after: TableSchema, dropped: Sequence[str]) -> None:
    """Brings a table that leaves its key to `after`: its rows are whole from here on, and told apart by all columns."""
    waiting = stored.pending.rows() if stored.pending.exists() else None
    count = 0 if waiting is None else waiting.where(F.col(POSITION_COLUMN).isNotNull()).count()
    if count:
        _log.warning(
            "%s has no key any more, by which %d rows would be found that are not shown: values of them have not come "
            "yet, or newer rows had the same key. They are removed: if the source has them, read the table again",
            *(after.table, count),
        )
    rows = stored.silver.rows()
    gone = [name for name in dropped if name in rows.columns]
    nulls = {name: F.lit(None).cast(rows.schema[name].dataType) for name in (*gone, COLUMN_POSITIONS)}
    stored.silver.rekey(rows.withColumns(nulls), after, changed=bool(gone))
    if waiting is not None:
        stored.pending.rekey(waiting.limit(0), after, changed=True)


def is_complete() -> Column:
    """Returns true for a row of which all values are known: one that waits in the pending table only because a newer
    row has its key."""
    unknown = F.exists(F.map_values(COLUMN_POSITIONS), lambda entry: entry.isNull())
    return F.col(POSITION_COLUMN).isNotNull() & ~F.coalesce(unknown, F.lit(False))


def log_unknown_keys(rows: DataFrame, table_schema: TableSchema, required: Sequence[str]) -> None:
    """Logs the number of rows whose key `is_unknown`, and what to do."""
    count = rows.where(is_unknown(required)).count()
    if count:
        _log.warning(
            "%s: %d rows have no value in the key column %s, which later events go by: it was added, renamed or given "
            "another type after they were written. They stay as they are, beside newer ones of the same rows: read the "
            "table again (ingest resync PIPELINE TABLE)",
            table_schema.table,
            count,
            " or ".join(map(repr, required)),
        )


def newest_position(stored: KeyedTable) -> tuple[int, ...]:
    """Returns the highest position of any row or tombstone of the table; () if it has none."""
    found = [table.rows().select(POSITION_COLUMN) for table in (stored.silver, stored.pending) if table.exists()]
    found += [stored.tombstones.keys().select(POSITION_COLUMN)] if stored.tombstones.exists() else []
    highest = (rows.agg(F.max(POSITION_COLUMN).alias("at")).first() for rows in found)
    return max((tuple(row["at"]) for row in highest if row is not None and row["at"] is not None), default=())


def _rows(stored: KeyedTable) -> DataFrame:
    """Returns all rows with an image: those of silver, and those that wait."""
    shown = stored.silver.rows().withColumn(_IN_SILVER, F.lit(True))
    if not stored.pending.exists():
        return shown
    waiting = stored.pending.rows().where(F.col(POSITION_COLUMN).isNotNull())
    return shown.unionByName(waiting.withColumn(_IN_SILVER, F.lit(False)), allowMissingColumns=True)


def _old_facts(
    rows: DataFrame, stored: KeyedTable, before: TableSchema, former: Sequence[tuple[str, ...]]
) -> DataFrame:
    """Returns a tombstone of the old key for each row whose event carried that key."""
    if former and stored.tombstones.exists():
        known = stored.tombstones.all().select(TOMBSTONE_KEY, POSITION_COLUMN)
        rows = carriers(rows, before.key, dict.fromkeys(former, known), before.key_types)
    return rows.select(tombstone_key(before.key, before.key_types).alias(TOMBSTONE_KEY), POSITION_COLUMN)


def _is_unique(rows: DataFrame, key: Sequence[str], required: Sequence[str]) -> bool:
    return rows.groupBy(row_id(key, required)).count().where("count > 1").isEmpty()


def _once(rows: DataFrame, table_schema: TableSchema) -> DataFrame:
    """Returns the complete rows. Of copies that a crash has left, that of the pending table."""
    by = [*map(quoted, table_schema.key), F.col(POSITION_COLUMN)]
    order = [c for c in rows.columns if c not in (*table_schema.key, POSITION_COLUMN)]
    best = F.min_by(F.struct(*map(quoted, order)), F.col(_IN_SILVER)).alias("_ingest_best")
    once = rows.where(is_complete()).groupBy(*by).agg(best)
    return once.select(*by, *(F.col("_ingest_best").getField(c).alias(c) for c in order))
