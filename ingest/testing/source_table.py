"""Tables as their source defines them, and the changes of these definitions (DDL)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

ChangeKind = Literal[
    "create.table",
    "drop.table",
    "add.column",
    "drop.column",
    "rename.column",
    "alter.column.type",
    "alter.default",
    "alter.nullability",
    "alter.key",
]


class _Unknown:
    def __repr__(self) -> str:
        return "!"


UNKNOWN = _Unknown()
"""Stands for a value that only the source knows: of a volatile default, or of a conversion by an expression."""


@dataclass(frozen=True)
class SourceColumn:
    """A column of a source's table.

    Attributes:
        type: as Postgres' `format_type` writes it, or a shorter alias (`casts.ALIASES`); empty if it doesn't matter.
        number: the attribute number, which no other column of the table ever gets.
        default: the constant default; None for none; UNKNOWN for an expression that only the source can evaluate.
        optional: False for NOT NULL.
        missing: the value that the source's catalog holds for rows from before the column (`attmissingval`), until the
            table is rewritten.
    """

    type: str = ""
    number: int = 0
    default: Any = None
    optional: bool = True
    missing: Any = None


@dataclass(frozen=True)
class SourceTable:
    """The definition of a source's table at one position.

    Attributes:
        columns: name → column, in the source's order.
        key: the key columns; () for a keyless table; None if keys are values of their own, which no column holds.
        oid: of the relation; a table that is dropped and created again gets another one.
    """

    columns: Mapping[str, SourceColumn] = field(default_factory=dict)
    key: tuple[str, ...] | None = None
    oid: int = 0

    @property
    def keyless(self) -> bool:
        """True if the table has no key: its rows are a bag."""
        return self.key == ()


@dataclass(frozen=True)
class TableChange:
    """A change of a table's definition.

    Attributes:
        kind: by the names of the events of a schema policy.
        column: the column that is changed; of `rename.column`, its name before.
        to: the column afterwards, of `add.column`, `alter.column.type`, `alter.default` and `alter.nullability`. Rows
            that exist when it is added read its default.
        name: of `rename.column`, the name afterwards.
        key: of `alter.key`, the key columns afterwards.
        using: of `alter.column.type`, True if the source computes the new values by an expression, not by a cast.
        table: of `create.table`, the definition.
    """

    kind: ChangeKind
    column: str = ""
    to: SourceColumn | None = None
    name: str = ""
    key: tuple[str, ...] = ()
    using: bool = False
    table: SourceTable | None = None


def changed(table: SourceTable, change: TableChange) -> SourceTable:
    """Returns the definition after a change."""
    columns = dict(table.columns)
    match change.kind:
        case "create.table":
            return change.table or SourceTable()
        case "drop.table":
            return SourceTable(oid=table.oid)
        case "drop.column":
            del columns[change.column]
        case "rename.column":
            renamed = {change.column: change.name}
            columns = {renamed.get(name, name): column for name, column in columns.items()}
            key = table.key and tuple(renamed.get(name, name) for name in table.key)
            return replace(table, columns=columns, key=key)
        case "alter.key":
            keys = {name: replace(columns[name], optional=False) for name in change.key}
            return replace(table, columns=columns | keys, key=change.key)
        case _:
            assert change.to is not None, f"{change.kind} needs the column afterwards"
            columns[change.column] = change.to
    if change.kind == "alter.column.type":  # rewrites the table: missing values are written into its rows
        columns = {name: replace(column, missing=None) for name, column in columns.items()}
    return replace(table, columns=columns)


def key_of(row: Mapping[str, Any], key: Sequence[str]) -> Hashable:
    """Returns the key of a row: the value of a single key column, or a tuple of the values of several."""
    values = tuple(row.get(name) for name in key)
    return values[0] if len(values) == 1 else values


def same_name(one: str, other: str) -> bool:
    """Returns True if Delta considers two names of columns equal: they differ only in case."""
    return one.lower() == other.lower()
