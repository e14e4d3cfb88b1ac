"""Reads the catalog of a Postgres source: what rows from before a column read in it (`pg_attribute.attmissingval`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import psycopg

from ingest.errors import Unreachable
from ingest.evolution.definition import NULL, UNKNOWN, Fill, FillKind
from ingest.evolution.postgres_types import told_column, with_default
from ingest.evolution.seen_definitions import CatalogColumn

_CONNECT_SECONDS = 10
# Forms of values that no setting of the database changes, as in the messages of the triggers (ddl_trigger.sql).
_SETTINGS = """
    SET LOCAL timezone = 'UTC'; SET LOCAL datestyle = 'ISO, YMD'; SET LOCAL intervalstyle = 'iso_8601';
    SET LOCAL bytea_output = 'hex'; SET LOCAL extra_float_digits = 1; SET LOCAL lc_monetary = 'C';
    SET LOCAL statement_timeout = '10s'
"""
_COLUMNS = """
    WITH RECURSIVE part(id) AS (
        SELECT to_regclass(format('%%I.%%I', %(schema)s::text, %(table)s::text))::oid
        UNION SELECT i.inhrelid FROM part JOIN pg_inherits i ON i.inhparent = part.id
    ), base(id, below) AS (
        SELECT a.atttypid, a.atttypid FROM pg_attribute a JOIN part ON part.id = a.attrelid
        UNION SELECT base.id, t.typbasetype FROM base JOIN pg_type t ON t.oid = base.below WHERE t.typbasetype <> 0
    )
    SELECT a.attname, a.attnum, format_type(a.atttypid, a.atttypmod), format_type(b.oid, NULL),
        a.atttypid <> b.oid, b.typtype = 'e', (
            SELECT array_to_json(m.attmissingval)::text
            FROM part JOIN pg_attribute m ON m.attrelid = part.id AND m.attname = a.attname AND NOT m.attisdropped
            WHERE m.attmissingval IS NOT NULL ORDER BY m.attrelid <> a.attrelid LIMIT 1
        ),
        a.atthasdef OR a.attidentity <> '' OR a.attgenerated <> '' OR a.attnotnull OR t.typnotnull
            OR t.typdefault IS NOT NULL,
        EXISTS (SELECT FROM part JOIN pg_class c ON c.oid = part.id WHERE c.relkind = 'r' AND c.relfilenode <> c.oid)
    FROM pg_attribute a
        JOIN pg_type t ON t.oid = a.atttypid
        JOIN base ON base.id = a.atttypid
        JOIN pg_type b ON b.oid = base.below AND b.typbasetype = 0
    WHERE a.attrelid = to_regclass(format('%%I.%%I', %(schema)s::text, %(table)s::text))
        AND a.attnum > 0 AND NOT a.attisdropped AND %(database)s IN ('', current_database())
"""
"""The last two: rows may have values that the catalog lacks; the table's rows were rewritten since it was created."""


@dataclass(frozen=True)
class SourceCatalog:
    """The catalog of the database that a pipeline's changes come from. `dsn`: the connection to it."""

    dsn: str = field(repr=False)

    def columns(self, table: str, database: str = "") -> dict[str, CatalogColumn]:
        """Returns the columns of a table, `schema.table`, by name; empty if the catalog has no such table, or is not
        that of `database`. Raises Unreachable if it can't be read."""
        schema, _, name = table.partition(".")
        try:
            with psycopg.connect(self.dsn, connect_timeout=_CONNECT_SECONDS) as connection:
                connection.execute(_SETTINGS)
                names = {"schema": schema, "table": name, "database": database}
                rows = connection.execute(_COLUMNS, names).fetchall()
        except psycopg.Error as failure:
            raise Unreachable(
                f"the catalog of the source's database can't be read ({type(failure).__name__})",
                "see that it runs, and correct source: {database: …} in the pipeline's file",
            ) from None
        return {row[0]: CatalogColumn(row[1], _fill(row)) for row in rows}


def _fill(row: Sequence[Any]) -> Fill | None:
    """Returns what rows from before the column read; None if the catalog doesn't tell."""
    name, _, type_, base, is_domain, is_enum, missing, may_have_value, is_rewritten = row
    if missing is not None:
        # A domain doesn't show the modifiers of the type below it.
        known = told_column(name, base if is_domain else type_, base, is_enum)
        is_known = known is not None and not (is_domain and base.removesuffix("[]") == "numeric")
        (value,) = json.loads(missing, parse_float=Decimal)
        constant = with_default(known, value) if known is not None and is_known else None
        return UNKNOWN if constant is None else Fill(FillKind.CONSTANT, constant)
    if is_rewritten:
        # The rows hold their values, and the catalog none.
        return UNKNOWN if may_have_value else None
    return NULL
