"""Random statements on real tables and on their definitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import psycopg
from psycopg import sql

from ingest.testing.table_source import ODD_NAMES, PLAIN_NAMES

_VALUES: Mapping[str, Sequence[str]] = {
    "smallint": ("0", "-7", "32767"),
    "int": ("1", "-2147483648", "42"),
    "bigint": ("9007199254740993", "-1", "7"),
    "numeric(12,2)": ("0", "-1.50", "99999.99"),
    "numeric": ("12.345", "-1e20", "0"),
    "boolean": ("true", "false"),
    "date": ("1969-12-31", "2026-03-01"),
    "timestamp": ("2026-03-01 08:00:00.000001", "1900-01-01"),
    "timestamptz": ("2026-03-01 08:00:00+02", "1970-01-01Z"),
    "uuid": ("7c1f0c1e-0000-4000-8000-000000000001", "7c1f0c1e-0000-4000-8000-000000000002"),
    "varchar(20)": ("", "grün 😀", "null", "7"),
    "text": ("", "a,b", "c'd\"e", "x" * 40),
    "int[]": ("{1,NULL}", "{}", "{3}"),
    "text[]": ('{"a b",NULL}', "{}"),
}
"""Type → texts of values."""
_CONVERSIONS = {
    "smallint": ("int", "bigint", "text"),
    "int": ("bigint", "numeric", "text"),
    "bigint": ("numeric", "text"),
    "numeric(12,2)": ("numeric", "text"),
    "boolean": ("text",),
    "date": ("timestamp", "text"),
    "uuid": ("text",),
    "varchar(20)": ("text",),
    "int[]": ("text[]",),
}
"""Type → types to which Postgres converts it without loss."""
_WITHOUT_DEFAULTS = ("numeric", "int[]", "text[]")
"""Types of which the schemas of events show no default."""
_IDS = 12
"""The number of IDs that statements choose from."""
Connection = psycopg.Connection[Any]


@dataclass
class RandomTable:
    """A table with random rows under random statements.

    `name`: schema and name. `columns`: name → type, without those of the key. `key`: columns of the primary key, which
    are among `id`, `region` and `code`."""

    connection: Connection
    name: tuple[str, str]
    random: Random
    columns: dict[str, str] = field(default_factory=dict)
    key: tuple[str, ...] = ("id",)
    dropped: list[str] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)

    def create(self) -> None:
        self.columns = {name: self._type() for name in self.random.sample(PLAIN_NAMES, 2)}
        columns = [sql.SQL("{} {}").format(sql.Identifier(n), sql.SQL(t)) for n, t in self.columns.items()]
        fixed = sql.SQL("id int NOT NULL PRIMARY KEY, region text NOT NULL DEFAULT 'eu', code int NOT NULL")
        self._execute("CREATE TABLE {table} ({columns})", columns=sql.SQL(", ").join([fixed, *columns]))
        if self.random.random() < 0.4:
            self._execute("ALTER TABLE {table} REPLICA IDENTITY FULL")

    def step(self, changes: Mapping[Callable[[RandomTable], None], int]) -> None:
        """Executes a statement; one that the database refuses changes nothing."""
        rows: dict[Callable[[RandomTable], None], int] = {
            RandomTable.insert: 9,
            RandomTable.update: 9,
            RandomTable.move: 2,
            RandomTable.delete: 3,
        }
        weights = rows | dict(changes)
        (statement,) = self.random.choices([*weights], [*weights.values()])
        before = (dict(self.columns), self.key, list(self.dropped))
        try:
            with self.connection.transaction():
                statement(self)
        except (psycopg.errors.IntegrityError, psycopg.errors.DataError):
            self.columns, self.key, self.dropped = before

    def insert(self) -> None:
        self._insert(self._id())

    def insert_new(self) -> None:
        """Inserts a row whose ID no other has."""
        before = len(self.statements)
        while len(self.statements) == before:
            with suppress(psycopg.errors.IntegrityError, psycopg.errors.DataError), self.connection.transaction():
                self._insert(_IDS + before)

    def _insert(self, id_: int) -> None:
        some = [name for name in self.columns if self.random.random() < 0.8]
        row = {"id": id_, "region": self.random.choice(["eu", "us"]), "code": self.random.randrange(10**6)}
        names = sql.SQL(", ").join(map(sql.Identifier, [*row, *some]))
        values = sql.SQL(", ").join([*map(sql.Literal, row.values()), *(self._literal(name) for name in some)])
        self._execute("INSERT INTO {table} ({names}) VALUES ({values})", names=names, values=values)

    def update(self) -> None:
        if self.columns:
            name = self.random.choice([*self.columns])
            self._execute(
                "UPDATE {table} SET {column} = {value} WHERE id = {id}",
                column=sql.Identifier(name),
                value=self._literal(name),
                id=sql.Literal(self._id()),
            )

    def move(self) -> None:
        ids = {"old": sql.Literal(self._id()), "new": sql.Literal(self._id())}
        self._execute("UPDATE {table} SET id = {new}, region = 'us' WHERE id = {old} AND {new} <> {old}", **ids)

    def delete(self) -> None:
        self._execute("DELETE FROM {table} WHERE id = {id}", id=sql.Literal(self._id()))

    def truncate(self) -> None:
        self._execute("TRUNCATE {table}")

    def add_column(self) -> None:
        """Adds a column with a constant default or none."""
        name = self._new_name()
        self.columns[name] = self._type()
        self._add(name, has_default=self.random.random() < 0.6)

    def add_shown_column(self) -> None:
        """Adds a column as `add_column`, but without a default if Debezium sends none of its type."""
        name = self._new_name()
        self.columns[name] = self._type()
        is_sent = self.columns[name] not in _WITHOUT_DEFAULTS
        self._add(name, has_default=is_sent and self.random.random() < 0.6)

    def _add(self, name: str, has_default: bool) -> None:
        default: sql.Composable = sql.SQL("")
        if has_default:
            not_null = sql.SQL(" NOT NULL" if self.random.random() < 0.3 else "")
            default = sql.SQL(" DEFAULT {}{}").format(self._literal(name, is_null=False), not_null)
        self._execute("ALTER TABLE {table} ADD {column} {type}{default}", default=default, **self._column(name))

    def drop_column(self) -> None:
        if self.columns:
            name = self.random.choice([*self.columns])
            self._execute("ALTER TABLE {table} DROP {column}", **self._column(name))
            del self.columns[name]
            self.dropped.append(name)

    def rename_column(self) -> None:
        if self.columns:
            name = self.random.choice([*self.columns])
            new = self._new_name()
            self._execute("ALTER TABLE {table} RENAME {column} TO {new}", new=sql.Identifier(new), **self._column(name))
            self.columns = {(new if n == name else n): t for n, t in self.columns.items()}
            self.dropped.append(name)

    def alter_type(self) -> None:
        able = [name for name, type_ in self.columns.items() if type_ in _CONVERSIONS]
        if able:
            name = self.random.choice(able)
            self.columns[name] = self.random.choice(_CONVERSIONS[self.columns[name]])
            # A default may have no conversion of its own.
            self._execute(
                "ALTER TABLE {table} ALTER {column} DROP DEFAULT, ALTER {column} TYPE {type} USING {column}::{type}",
                **self._column(name),
            )

    def alter_default(self) -> None:
        if self.columns:
            name = self.random.choice([*self.columns])
            value = self._literal(name, is_null=False)
            self._execute("ALTER TABLE {table} ALTER {column} SET DEFAULT {value}", value=value, **self._column(name))

    def alter_key(self) -> None:
        self.key = self.random.choice([k for k in (("id",), ("id", "region"), ("code",)) if k != self.key])
        key = sql.SQL(", ").join(map(sql.Identifier, self.key))
        constraint = sql.Identifier(f"{self.name[1]}_pkey")
        self._execute(
            "ALTER TABLE {table} DROP CONSTRAINT {constraint}, ADD CONSTRAINT {constraint} PRIMARY KEY ({key})",
            constraint=constraint,
            key=key,
        )

    def _execute(self, text: str, **parts: sql.Composable) -> None:
        statement = sql.SQL(text).format(table=sql.Identifier(*self.name), **parts)
        self.connection.execute(statement)
        self.statements.append(statement.as_string(self.connection))

    def _column(self, name: str) -> dict[str, sql.Composable]:
        return {"column": sql.Identifier(name), "type": sql.SQL(self.columns[name])}

    def _literal(self, name: str, is_null: bool | None = None) -> sql.Composable:
        if is_null is None and self.random.random() < 0.2:
            return sql.SQL("NULL")
        return sql.Literal(self.random.choice(_VALUES[self.columns[name]]))

    def _type(self) -> str:
        return self.random.choice([*_VALUES])

    def _id(self) -> int:
        return self.random.randrange(_IDS)

    def _new_name(self) -> str:
        names = [*PLAIN_NAMES, *ODD_NAMES, *self.dropped * 8]
        taken = {name.lower() for name in (*self.columns, "id", "region", "code")}
        return self.random.choice([name for name in names if name.lower() not in taken])


SHOWN: Mapping[Callable[[RandomTable], None], int] = {
    RandomTable.add_shown_column: 3,
    RandomTable.drop_column: 1,
    RandomTable.alter_type: 1,
    RandomTable.alter_key: 1,
}
"""Changes that the schemas of later events show, with their weights."""
TOLD: Mapping[Callable[[RandomTable], None], int] = {
    RandomTable.add_column: 2,
    RandomTable.drop_column: 1,
    RandomTable.rename_column: 1,
    RandomTable.alter_type: 1,
    RandomTable.alter_default: 1,
    RandomTable.alter_key: 1,
    RandomTable.truncate: 1,
}
"""All changes. Messages of the DDL trigger tell them."""
