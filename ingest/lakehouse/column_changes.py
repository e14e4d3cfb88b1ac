"""Revises stored rows to what is known of a table's columns now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest.changelog.change import COLUMN_POSITIONS, DELETED, POSITION_COLUMN, quoted
from ingest.changelog.position import is_read_without_position, position_literal
from ingest.delta import compaction
from ingest.delta.delta_table import Table
from ingest.delta.txn_versions import TxnVersion
from ingest.evolution.policies import TableColumn
from ingest.evolution.revisions import ColumnRevision, Piece, Source
from ingest.lakehouse.silver_rows import SilverRows
from ingest.lakehouse.table_properties import MAPPING
from ingest.merge.image_columns import default_value
from ingest.merge.table_schema import TableSchema
from ingest.values.conversion import converted
from ingest.values.types import spark_type


def evolve_table(
    table: Table,
    silver_rows: SilverRows,
    before: TableSchema,
    altered: Sequence[ColumnRevision],
    properties: Mapping[str, str],
    versions: Sequence[TxnVersion],
) -> None:
    """Brings a table from the columns and types of `before` to those of `silver_rows` in one commit, with `versions`.

    Adds columns by a commit of metadata. Rewrites the files if a column gets a wider type (without entries in the
    change data feed) or stored values change (with an entry for every row)."""
    after = silver_rows.table_schema
    old = {c.name: c for c in before.columns}
    kinds = {c.name: spark_type(c.type) for c in after.columns if c.name in old}
    widened = {name: kind for name, kind in kinds.items() if kind != spark_type(old[name].type)}
    if MAPPING in properties and not table.is_mapped():
        # In a commit of its own: the existing columns keep the names that they have in the files.
        table.set_property(MAPPING, properties[MAPPING])
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
    stored = _converted_columns(rows, before, after)
    revised = {one.column: _revised(rows, stored, columns[one.column], one) for one in altered if one.column in columns}
    if DELETED in rows.columns:  # A delete has no values but those of its key.
        revised = {n: value if n in after.key else F.when(~F.col(DELETED), value) for n, value in revised.items()}
    missing = {name: default_value(None, column) for name, column in columns.items() if name not in stored}
    return rows.withColumns({**missing, **stored, **revised})


def _converted_columns(rows: DataFrame, before: TableSchema, after: TableSchema) -> dict[str, Column]:
    """Returns the stored columns with their new types, by name."""
    old, kinds = {c.name: c.type for c in before.columns}, {f.name: f.dataType for f in rows.schema}
    found = {}
    for column in after.columns:
        if column.name in kinds:
            # If an earlier run died after this, the stored type is the new one already.
            is_old = column.name in old and kinds[column.name] == spark_type(old[column.name])
            value = quoted(column.name)
            found[column.name] = converted(value, old[column.name], column.type) if is_old else value
    return found


def _revised(rows: DataFrame, stored: dict[str, Column], target: TableColumn, revision: ColumnRevision) -> Column:
    """Returns the column as its pieces say. Values that a read without a position brought stay: theirs is not that of
    their schema."""
    source = stored.get(revision.stored or target.name)
    if source is None:
        return _by_position(F.col(POSITION_COLUMN), revision.pieces, target, None)
    name = revision.stored or target.name
    at = F.col(POSITION_COLUMN)
    if COLUMN_POSITIONS in rows.columns:
        own = F.col(COLUMN_POSITIONS)[name]["position"]
        at = F.when(F.map_contains_key(COLUMN_POSITIONS, name), own).otherwise(at)
    is_kept = at.isNull() | (source.isNotNull() & is_read_without_position(at))
    if revision.stored is None:
        # The column's values so far are of events without a schema.
        is_kept |= source.isNotNull()
    return F.when(is_kept, source).otherwise(_by_position(at, revision.pieces, target, source))


def _by_position(at: Column, pieces: Iterable[Piece], target: TableColumn, stored: Column | None) -> Column:
    """Returns the value of the piece that holds the position `at`."""
    *others, last = [(piece.end, _value(piece, target, stored)) for piece in pieces]
    if not others:
        return last[1]
    first, *rest = [(at < position_literal(end), value) for end, value in others if end is not None]
    return reduce(lambda found, piece: found.when(*piece), rest, F.when(*first)).otherwise(last[1])


def _value(piece: Piece, target: TableColumn, stored: Column | None) -> Column:
    if piece.source is Source.STORED and stored is not None:
        return stored
    return default_value(piece.fill.column if piece.source is Source.CONSTANT else None, target)
