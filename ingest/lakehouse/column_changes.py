"""Revises stored rows to what is known of a table's columns now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest.changelog.change import COLUMN_POSITIONS, DELETED, POSITION_COLUMN, column_position, quoted
from ingest.changelog.position import is_read_without_position, position_literal
from ingest.delta import compaction
from ingest.delta.delta_table import Table
from ingest.delta.txn_versions import TxnVersion
from ingest.evolution.policies import TableColumn
from ingest.evolution.revisions import ColumnRevision, Piece, Source
from ingest.evolution.type_steps import casts, passed_casts
from ingest.lakehouse.silver_rows import SilverRows
from ingest.merge.image_values import default_value
from ingest.merge.table_schema import TableSchema
from ingest.values.conversion import converted
from ingest.values.postgres_cast import Cast, as_before, before_cast, converted_by, postgres_cast
from ingest.values.types import LogicalType, spark_type, widest


def evolve_table(
    table: Table,
    silver_rows: SilverRows,
    before: TableSchema,
    altered: Sequence[ColumnRevision],
    properties: Mapping[str, str],
    versions: Sequence[TxnVersion],
) -> None:
    """Brings a table from the columns and types of `before` to those of `silver_rows` in one commit, with `versions`.
    If columns of a mapped table go, `Table.finish_columns` follows.

    Adds columns by a commit of metadata. Rewrites the files if a column gets a wider type (without entries in the
    change data feed) or stored values change (with an entry for every row)."""
    after = silver_rows.table_schema
    old = {c.name: c for c in before.columns}
    kinds = {c.name: spark_type(c.type) for c in after.columns if c.name in old}
    widened = {name: kind for name, kind in kinds.items() if kind != spark_type(old[name].type)}
    if not (altered or widened):
        columns = None if before.columns == after.columns else silver_rows.schema
        table.commit(None, properties=properties, columns=columns, more_versions=versions)
        return
    files = list(table.files().values())
    rows = revised_rows(table.rows_in(files), before, after, altered)
    frame = silver_rows.laid_out(rows, compaction.file_count(files))
    types = {name: kind.simpleString() for name, kind in widened.items()}
    table.convert(frame, silver_rows.schema, types, bool(altered), properties, versions)


def revised_rows(
    rows: DataFrame, before: TableSchema, after: TableSchema, altered: Sequence[ColumnRevision] = ()
) -> DataFrame:
    """Returns rows with the columns and types of `after`. A value of an altered column becomes what its revision says
    of the value's own position; a new column is null elsewhere. Revising rows twice changes nothing more."""
    columns = {column.name: column for column in after.columns}
    stored = _stored_values(rows, before)
    same = {name: _in_type(value, columns[name].type) for name, value in stored.items() if name in columns}
    revised = {one.column: _revised(rows, stored, columns[one.column], one) for one in altered if one.column in columns}
    if DELETED in rows.columns:  # A delete has no values but those of its key.
        revised = {n: value if n in after.key else F.when(~F.col(DELETED), value) for n, value in revised.items()}
    missing = {name: default_value(None, column) for name, column in columns.items() if name not in stored}
    return rows.withColumns({**missing, **same, **revised, **_renamed_positions(rows, altered)})


def _renamed_positions(rows: DataFrame, altered: Sequence[ColumnRevision]) -> dict[str, Column]:
    """Returns `COLUMN_POSITIONS` with the names that columns have now; empty if none has another one."""
    names = {one.stored: one.column for one in altered if one.stored not in (None, one.column)}
    if not names or COLUMN_POSITIONS not in rows.columns:
        return {}
    pairs = F.create_map(*(F.lit(name) for pair in names.items() for name in pair))
    others = F.map_filter(COLUMN_POSITIONS, lambda name, _: ~name.isin(*names.values()) | name.isin(*names))
    renamed = F.transform_keys(others, lambda name, _: F.coalesce(F.try_element_at(pairs, name), name))
    return {COLUMN_POSITIONS: F.when(F.col(COLUMN_POSITIONS).isNotNull(), renamed)}


@dataclass(frozen=True)
class _Stored:
    """The values of a stored column, and their type; None if the column has another type already: if an earlier run
    died, of a version that changed the catalog last."""

    column: Column
    type: LogicalType | None


def _stored_values(rows: DataFrame, before: TableSchema) -> dict[str, _Stored]:
    """Returns the stored columns by name."""
    old, kinds = {c.name: c.type for c in before.columns}, {f.name: f.dataType for f in rows.schema}
    return {
        name: _Stored(quoted(name), old[name] if name in old and kind == spark_type(old[name]) else None)
        for name, kind in kinds.items()
    }


def _in_type(stored: _Stored, type_: LogicalType) -> Column:
    """Returns stored values in another type of their column."""
    if stored.type is None or stored.type == type_:
        return stored.column
    if widest(type_, stored.type) == type_:
        return converted(stored.column, stored.type, type_)
    return postgres_cast(stored.column, Cast(stored.type, type_))


def _revised(rows: DataFrame, stored: Mapping[str, _Stored], target: TableColumn, revision: ColumnRevision) -> Column:
    """Returns the column as its pieces say. Values that a read without a position brought stay: theirs is not that of
    their schema."""
    # A rebuild that died may have renamed the column already.
    name = revision.stored if revision.stored is not None and revision.stored in stored else target.name
    source = stored.get(name)
    if source is None:
        return _by_position(F.col(POSITION_COLUMN), revision.pieces, target, None, stored)
    at = column_position(name) if COLUMN_POSITIONS in rows.columns else F.col(POSITION_COLUMN)
    is_kept = at.isNull() | (source.column.isNotNull() & is_read_without_position(at))
    if revision.stored is None:
        # The column's values so far are of events without a schema.
        is_kept |= source.column.isNotNull()
    kept = _in_type(source, target.type)
    return F.when(is_kept, kept).otherwise(_by_position(at, revision.pieces, target, source, stored))


def _by_position(
    at: Column, pieces: Iterable[Piece], target: TableColumn, source: _Stored | None, stored: Mapping[str, _Stored]
) -> Column:
    """Returns the value of the piece that holds the position `at`. `source`: the column that the revision names."""
    named = ((piece, stored.get(piece.other or "", source)) for piece in pieces)
    *others, last = [(piece.end, _value(piece, target, held)) for piece, held in named]
    if not others:
        return last[1]
    first, *rest = [(at < position_literal(end), value) for end, value in others if end is not None]
    return reduce(lambda found, piece: found.when(*piece), rest, F.when(*first)).otherwise(last[1])


def _value(piece: Piece, target: TableColumn, stored: _Stored | None) -> Column:
    if piece.source is Source.STORED and stored is not None:
        return _passed(stored, piece, target)
    constant = piece.fill.column if piece.source is Source.CONSTANT else None
    passed = () if constant is None else casts(constant.type, piece.types, target.type)
    return default_value(constant, target, passed)


def _passed(stored: _Stored, piece: Piece, target: TableColumn) -> Column:
    """Returns stored values after the types that they pass."""
    now = piece.undone[-1].type if piece.undone else piece.types[0].type if piece.types else None
    if stored.type is None or now is None:
        return _in_type(stored, target.type)
    value, own = as_before(stored.column, stored.type, now)
    for cast in reversed(passed_casts(piece.undone)):
        value, own = before_cast(value, cast), cast.before
    passed = casts(own, piece.types, target.type)
    if passed is None:
        return default_value(None, target)
    return converted_by(value, passed or (Cast(own, target.type),))
