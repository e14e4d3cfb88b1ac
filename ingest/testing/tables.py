"""Random tables: statements on a table and on its definition, the events that its source logs, and its true rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, get_args

from ingest.testing import definition_statements as definition
from ingest.testing import row_statements as rows
from ingest.testing.oracle import Event, Row
from ingest.testing.source_table import SourceColumn, SourceTable
from ingest.testing.source_types import MODES, Mode, source_types
from ingest.testing.table_source import ODD_NAMES, PLAIN_NAMES, TableSource

RowStatement = Literal["insert", "update", "move", "delete", "read", "truncate"]
DefinitionStatement = Literal[
    "add column",
    "add volatile column",
    "drop column",
    "rename column",
    "alter type",
    "alter type using",
    "alter default",
    "alter nullability",
    "alter key",
    "recreate table",
]
StatementKind = RowStatement | DefinitionStatement

_ROW_STATEMENTS: Mapping[StatementKind, Callable[[TableSource], None]] = {
    "insert": rows.insert,
    "update": rows.update,
    "move": rows.move,
    "delete": rows.delete,
    "read": rows.read,
    "truncate": rows.truncate,
}
_DEFINITION_STATEMENTS: Mapping[StatementKind, Callable[[TableSource], None]] = {
    "add column": definition.add_column,
    "add volatile column": definition.add_volatile_column,
    "drop column": definition.drop_column,
    "rename column": definition.rename_column,
    "alter type": definition.alter_type,
    "alter type using": definition.alter_type_using,
    "alter default": definition.alter_default,
    "alter nullability": definition.alter_nullability,
    "alter key": definition.alter_key,
    "recreate table": definition.recreate_table,
}
CHANGES: tuple[DefinitionStatement, ...] = get_args(DefinitionStatement)
"""All changes of the definition."""
SHOWN: tuple[DefinitionStatement, ...] = ("add column", "drop column", "alter type", "alter key")
"""Changes of the definition that the next event shows exactly by its schema and its key."""

OFTEN: tuple[RowStatement, ...] = ("insert", "insert", "insert", "update", "update", "update", "move", "delete")
RARELY: tuple[RowStatement, ...] = ("read", "truncate")
"""Statements on rows that random tables execute often, and rarely."""


@dataclass(frozen=True)
class Statement:
    """A statement. `seed`: of the random numbers that it takes its rows, columns and values from; so it does the same
    to the same table."""

    kind: StatementKind
    seed: int


@dataclass(frozen=True)
class TableStory:
    """A table and what happened to it.

    Attributes:
        name: schema and name.
        mode: how the connector writes types.
        full: REPLICA IDENTITY FULL.
        start: the definition at the start.
        statements: what was executed.
        unlogged: the number of statements after which the connector started, with a snapshot of the rows; None if it
            saw all of them.
        events: the changelog in the source's order, changes of the definition included; the first is `create.table`.
        table, rows: the definition and the true rows at the end.
    """

    name: str
    mode: Mode
    full: bool
    start: SourceTable
    statements: tuple[Statement, ...]
    unlogged: int | None
    events: tuple[Event, ...]
    table: SourceTable
    rows: tuple[Row, ...]

    def of(self, statements: Sequence[Statement]) -> TableStory:
        """Returns the story of the same table with other statements, such as fewer (`shrink`)."""
        return interpret(self.start, statements, self.name, self.mode, self.full, self.unlogged)

    @property
    def has_bags(self) -> bool:
        """True if the table is keyless at some time: then no event may be lost or counted twice."""
        return any(event.carried is not None and event.carried.keyless for event in self.events)


def interpret(
    start: SourceTable,
    statements: Sequence[Statement],
    name: str = "public.t",
    mode: Mode = "adaptive",
    full: bool = False,
    unlogged: int | None = None,
) -> TableStory:
    """Executes statements on a table that is empty at the start. The other arguments are the story's attributes."""
    source = TableSource(start, source_types(mode), full)
    for number, statement in enumerate(statements):
        if number == unlogged:
            source.start_log()
        source.random = Random(statement.seed)
        execute = _ROW_STATEMENTS.get(statement.kind) or _DEFINITION_STATEMENTS[statement.kind]
        execute(source)
    ended = (tuple(source.events), source.table, tuple(source.rows))
    return TableStory(name, mode, full, start, tuple(statements), unlogged, *ended)


def random_table(
    random: Random,
    statements: int = 30,
    changes: Collection[DefinitionStatement] = CHANGES,
    name: str = "public.t",
    mode: Mode | None = None,
    keyless: bool | None = None,
) -> TableStory:
    """Returns a table with a random definition and `statements` statements, about one in six of which is one of
    `changes`. The first statements insert rows. `mode`, `keyless`: None for any; a keyless table may get a key by
    "alter key"."""
    written: Mode = random.choice(MODES) if mode is None else mode
    start = random_definition(random, written, random.random() < 0.25 if keyless is None else keyless)
    drawn: list[StatementKind] = ["insert", "insert"]
    while len(drawn) < statements:
        is_change = changes and random.random() < 1 / 6
        of: Sequence[StatementKind] = [*changes] if is_change else OFTEN if random.random() < 0.93 else RARELY
        drawn.append(random.choice(of))
    seeded = [Statement(kind, random.getrandbits(32)) for kind in drawn]
    unlogged = random.randrange(statements) if random.random() < 0.2 else None
    return interpret(start, seeded, name, written, random.random() < 0.3, unlogged)


def random_definition(random: Random, mode: Mode, keyless: bool) -> SourceTable:
    """Returns a table of one to seven columns of any type; the first one or two are the key."""
    types = source_types(mode)
    able = [name for name, known in types.items() if known.is_key]
    key_types = [random.choice(able) for _ in range(random.choice((1, 1, 2)))]
    other_types = [random.choice([*types]) for _ in range(random.randint(0, 5))]
    names = ["id", *random.sample(PLAIN_NAMES, 4), *random.sample(ODD_NAMES, 4)]
    columns = {
        name: SourceColumn(type_, optional=number >= len(key_types))
        for number, (name, type_) in enumerate(zip(names, [*key_types, *other_types], strict=False))
    }
    return SourceTable(columns, () if keyless else (*columns,)[: len(key_types)], oid=16385)
