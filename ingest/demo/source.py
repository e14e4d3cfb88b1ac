"""The insurer's Postgres database and the configuration of its Debezium connector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from ingest.demo.claims import DDL, SCHEMA, Change, ClaimsBook, Row, Table
from ingest.stack import Postgres

CONNECTOR = "claims"


def connector_config(postgres: Postgres) -> dict[str, str]:
    """Returns the recipe of a connector for both tables, with short polling intervals."""
    return {
        **postgres.connector(CONNECTOR, schemas=[SCHEMA]),
        "poll.interval.ms": "100",
    }


class ClaimsDatabase:
    """A connection to the database. Only one thread may use it at a time."""

    def __init__(self, dsn: str) -> None:
        self._connection: psycopg.Connection[Any] = psycopg.connect(dsn, autocommit=True)

    def close(self) -> None:
        self._connection.close()

    def create(self, book: ClaimsBook) -> None:
        """Creates the tables and inserts the book's rows."""
        with self._connection.transaction():
            self._connection.execute(DDL)
            self._insert("members", book.members)
            self._insert("accident_claims", book.accident_claims)

    def commit(self, changes: Sequence[Change]) -> None:
        """Commits the changes in one transaction."""
        with self._connection.transaction():
            for change in changes:
                self._apply(change)

    def count(self, table: Table) -> int:
        query = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(SCHEMA, table))
        row = self._connection.execute(query).fetchone()
        return int(row[0]) if row else 0

    def _apply(self, change: Change) -> None:
        table = sql.Identifier(SCHEMA, change.table)
        match change.op:
            case "insert":
                self._insert(change.table, [change.values])
            case "update":
                assigned = sql.SQL(", ").join(
                    sql.SQL("{} = {}").format(sql.Identifier(c), sql.Placeholder(c)) for c in change.values
                )
                query = sql.SQL("UPDATE {} SET {} WHERE id = %(id)s").format(table, assigned)
                self._connection.execute(query, {**_adapted(change.values), "id": change.id})
            case "delete":
                query = sql.SQL("DELETE FROM {} WHERE id = %(id)s").format(table)
                self._connection.execute(query, {"id": change.id})

    def _insert(self, table: Table, rows: Sequence[Row]) -> None:
        columns = list(rows[0])
        query = sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
            sql.Identifier(SCHEMA, table),
            sql.SQL(", ").join(map(sql.Identifier, columns)),
            sql.SQL(", ").join(map(sql.Placeholder, columns)),
        )
        with self._connection.cursor() as cursor:
            cursor.executemany(query, [_adapted(row) for row in rows])


def _adapted(row: Row) -> dict[str, Any]:
    return {name: Jsonb(value) if isinstance(value, dict) else value for name, value in row.items()}
