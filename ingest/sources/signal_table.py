"""Writes signals to the signal table of a connector that reads none from Kafka."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql

from ingest.errors import SourceRefused, Unreachable


@dataclass(frozen=True)
class SignalTable:
    """`name`: `schema.table`, as the connector's `signal.data.collection` has it. `dsn`: the connection to its
    database."""

    name: str
    dsn: str = field(repr=False)

    def insert(self, signal: Mapping[str, Any]) -> None:
        """Inserts one signal. Raises SourceRefused where the database refuses it, and Unreachable without an answer."""
        row = (signal["id"], signal["type"], json.dumps(signal["data"], ensure_ascii=False))
        statement = sql.SQL("INSERT INTO {} VALUES (%s, %s, %s)").format(sql.Identifier(*self.name.split(".", 1)))
        try:
            with psycopg.connect(self.dsn, autocommit=True, connect_timeout=10) as connection:
                connection.execute(statement, row)
        except psycopg.OperationalError:
            raise Unreachable(
                f"the database of signal table {self.name} can't be reached",
                "see that it runs, and correct the connection string, then run the same command again",
            ) from None
        except psycopg.Error as failure:
            # The database's message may quote the signal, and with it the predicate.
            raise SourceRefused(
                f"the database refuses a signal in table {self.name} ({type(failure).__name__})",
                "create it as Debezium describes it: id varchar(64), type varchar(32), data text; grant INSERT on it",
            ) from None
