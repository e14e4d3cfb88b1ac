"""Versions of a table's definition as the schemas of its events show them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ingest.evolution.definition import (
    NULL,
    UNKNOWN,
    ColumnDefinition,
    Definition,
    Fill,
    FillKind,
    Origin,
    Place,
    Version,
)
from ingest.evolution.policies import TableColumn
from ingest.values.columns import Column, Encoding
from ingest.values.types import MAX_DIGITS, Kind, LogicalType, with_scale

_NULL_DEFAULT = "null"
_UNSHOWN = (Kind.ARRAY, Kind.MAP, Kind.STRUCT, Kind.BYTES, Kind.TIME_TZ, Kind.LTREE)
"""Kinds of types whose defaults Debezium shows in no schema (`PostgresDefaultValueConverter`), constants included."""
_MONEY = LogicalType(Kind.DECIMAL, MAX_DIGITS, 2)
_PLACEHOLDERS = {
    **dict.fromkeys(
        (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_TZ),
        re.compile(r'0|"1970-01-01(T00:00(:00(\.0+)?)?)?(Z|[+-][0-9:]+)?"'),
    ),
    Kind.UUID: re.compile(r'"[0-]{36}"'),
}
"""Defaults that Debezium shows for a function, such as now(), which hardly any column has as a constant."""
_BELOW_EVERY_EVENT: Place = (-1, 0, 0, 0, 0, 0, 0)


def seen_definition(columns: Sequence[Column], names: Mapping[str, str]) -> Definition:
    """Returns the definition that the schema of an event shows.

    A default is assumed to be what rows from before a column read: the schema shows the one that the source had when
    the connector read its catalog. Where it may have one that no schema shows, they read what only the source knows.
    `names`: column of the event → column of the table."""
    return Definition(
        tuple(ColumnDefinition(names[c.name], _defined_type(c), None, _assumed_fill(c), c.optional) for c in columns)
    )


def _defined_type(column: Column) -> LogicalType:
    """Returns the type of a column, with the scale of a numeric if its schema shows one."""
    is_written = column.wire.encoding is Encoding.DECIMAL_PLAIN and column.wire.digits < MAX_DIGITS
    has_scale = is_written or column.wire.encoding is Encoding.DECIMAL_UNSCALED
    return with_scale(column.wire.digits) if has_scale and column.type.kind is Kind.DECIMAL_TEXT else column.type


def stored_version(columns: Sequence[TableColumn]) -> Version:
    """Returns the version that stands for events of which no version was recorded: one with the table's columns, below
    every event."""
    definition = Definition(tuple(ColumnDefinition(c.name, c.type) for c in columns))
    return Version(_BELOW_EVERY_EVENT, definition, Origin.SEEN)


def untyped_version(columns: Sequence[TableColumn]) -> Version:
    """Returns `stored_version` without types: those of values tell none of the source's."""
    version = stored_version(columns)
    untyped = tuple(replace(column, type=None) for column in version.definition.columns)
    return replace(version, definition=replace(version.definition, columns=untyped))


def renamed_versions(versions: Collection[Version], names: Mapping[str, str]) -> frozenset[Version]:
    """Returns versions with other names of columns in those that events show. `names`: name before → name."""
    return frozenset(
        replace(version, definition=replace(version.definition, columns=_renamed(version.definition.columns, names)))
        if version.origin is Origin.SEEN
        else version
        for version in versions
    )


def _renamed(columns: Sequence[ColumnDefinition], names: Mapping[str, str]) -> tuple[ColumnDefinition, ...]:
    return tuple(replace(column, name=names.get(column.name, column.name)) for column in columns)


def _assumed_fill(column: Column) -> Fill:
    """Returns what rows from before a column read, as far as its schema shows it. One that is nullable and shows no
    default reads null if Debezium would show a constant of its type."""
    type_ = column.sealed.type if column.sealed is not None else column.written or column.type
    if column.has_default and column.default not in (None, _NULL_DEFAULT):
        placeholder = _PLACEHOLDERS.get(type_.kind)
        if placeholder is not None and placeholder.fullmatch(column.default or ""):
            return UNKNOWN
        return Fill(FillKind.CONSTANT, column)
    is_shown = type_.kind not in _UNSHOWN and column.wire.encoding is not Encoding.DECIMAL_VARIABLE
    is_shown &= (type_, column.wire.encoding) != (_MONEY, Encoding.DECIMAL_UNSCALED)
    return NULL if column.optional and is_shown else UNKNOWN
