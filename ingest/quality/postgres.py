"""Reads a Postgres table for a comparison: its columns, its key, and all of its rows in one snapshot.

The rows go to Parquet in chunks, so that neither this process nor Spark's driver ever holds the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from psycopg import sql

from ingest.errors import ConfigError, Unreachable
from ingest.quality.normal_forms import NormalForm, NormalisedColumn, array_form, normal_form
from ingest.values.types import OutOfRange

ROWS_PER_CHUNK = 20_000
_COLUMNS = """
    SELECT a.attname, t.typname, t.typtype = 'e', e.typname, coalesce(e.typtype = 'e', false),
           coalesce(a.attnum = ANY (i.indkey), false)
    FROM pg_attribute a
    JOIN pg_type d ON d.oid = a.atttypid
    JOIN pg_type t ON t.oid = coalesce(nullif(d.typbasetype, 0), d.oid)
    LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
    LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
    WHERE a.attrelid = to_regclass(format('%%I.%%I', %s::text, %s::text))
      AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attnum
"""


@dataclass(frozen=True)
class SourceTable:
    """`name`: `schema.table`. `key`: names of its primary key's columns, in the table's order."""

    name: str
    columns: tuple[NormalisedColumn, ...]
    key: tuple[str, ...]


def describe_table(
    connection: psycopg.Connection[Any], table: str, times: OutOfRange = OutOfRange.CLAMP
) -> SourceTable:
    """Returns the columns and the key of a table from the catalog of the database. `times`: how silver stores times out
    of range.

    Raises ConfigError if there is no such table, it has no primary key, or a column's type has no exact form.
    """
    rows = connection.execute(_COLUMNS, table.partition(".")[::2]).fetchall()
    key = tuple(row[0] for row in rows if row[5])
    if not key:
        missing = "has no primary key" if rows else "is not there, or hidden from this user"
        raise ConfigError(
            f"table {table} of the source {missing}", "compare tables that have a primary key and may be read"
        )
    columns = tuple(NormalisedColumn(row[0], _form(f"column {row[0]} of {table}", times, *row[1:5])) for row in rows)
    return SourceTable(table, columns, key)


def _form(
    column: str, times: OutOfRange, type_name: str, is_enum: bool, element: str | None, of_enums: bool
) -> NormalForm:
    scalar = normal_form(element or type_name, of_enums if element else is_enum, times)
    if scalar is None:
        raise ConfigError(
            f"{column} is of type {element or type_name}, which has no exact form to compare",
            "leave the table out of the comparison",
        )
    return array_form(scalar) if element else scalar


def export(
    dsn: str,
    table: str,
    file: Path,
    rows_per_chunk: int = ROWS_PER_CHUNK,
    times: OutOfRange = OutOfRange.CLAMP,
) -> SourceTable:
    """Writes all rows of the table to a Parquet file, in their normal forms, read in one snapshot.

    Raises ConfigError as `describe_table` does, and Unreachable if the database does not answer.
    """
    try:
        with psycopg.connect(dsn) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            source = describe_table(connection, table, times)
            schema = pa.schema([pa.field(str(i), c.form.arrow) for i, c in enumerate(source.columns)])
            with pq.ParquetWriter(file, schema) as writer:
                for chunk in _chunks(connection, source, rows_per_chunk):
                    arrays = [
                        pa.array(values, f.type) for values, f in zip(zip(*chunk, strict=True), schema, strict=True)
                    ]
                    writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
            return source
    except psycopg.OperationalError as error:
        raise Unreachable(
            f"the source database did not return {table}", "check that it runs, then compare again"
        ) from error


def _chunks(connection: psycopg.Connection[Any], source: SourceTable, size: int) -> Iterator[list[tuple[Any, ...]]]:
    # The forms are constants of this package; names from the database are quoted as identifiers.
    selected = [sql.SQL(c.form.sql).format(v=sql.Identifier(c.name)) for c in source.columns]
    table = sql.Identifier(*source.name.split(".", maxsplit=1))
    with connection.cursor("comparison") as cursor:
        cursor.execute(sql.SQL("SELECT {} FROM {}").format(sql.SQL(", ").join(selected), table))
        while chunk := cursor.fetchmany(size):
            yield chunk
