"""Versions of a table's definition as the schemas of its events show them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from ingest.evolution.definition import (
    NULL,
    ColumnDefinition,
    Definition,
    Fill,
    FillKind,
    Origin,
    Place,
    Version,
)
from ingest.evolution.life import Lives
from ingest.evolution.policies import TableColumn
from ingest.values.columns import Column, Encoding
from ingest.values.types import MAX_DIGITS, Kind, LogicalType, with_scale

_NULL_DEFAULT = "null"
_BELOW_EVERY_EVENT: Place = (-1, 0, 0, 0, 0, 0, 0)


def seen_definition(columns: Sequence[Column], names: Mapping[str, str]) -> Definition:
    """Returns the definition that the schema of an event shows.

    A default is assumed to be what rows from before a column read: the schema shows the one that the source had when
    the connector read its catalog. `names`: column of the event → column of the table."""
    return Definition(
        tuple(ColumnDefinition(names[c.name], _defined_type(c), None, _assumed_fill(c), c.optional) for c in columns)
    )


def _defined_type(column: Column) -> LogicalType:
    """Returns the type of a column, with the scale of a numeric if its schema shows one."""
    is_written = column.wire.encoding is Encoding.DECIMAL_PLAIN and column.wire.digits < MAX_DIGITS
    has_scale = is_written or column.wire.encoding is Encoding.DECIMAL_UNSCALED
    return with_scale(column.wire.digits) if has_scale and column.type.kind is Kind.DECIMAL_TEXT else column.type


def columns_with_unshown_fill(before: Lives, after: Lives, versions: Iterable[Version]) -> tuple[str, ...]:
    """Returns the columns new in `after` that are NOT NULL and show no default: rows from before have values in them
    that only the source knows. Debezium sends no default of an expression, an array or a numeric without a scale.
    `versions`: those of `after`."""
    known = {(life.column, life.begin) for life in before.columns}
    shown = (version for version in versions if version.origin is Origin.SEEN)
    required = {(c.name, version.since) for version in shown for c in version.definition.columns if not c.optional}
    new = (life for life in after.shown.values() if life.fill == NULL and (life.column, life.begin) not in known)
    return tuple(life.column for life in new if (life.name(life.begin), life.begin) in required)


def stored_version(columns: Sequence[TableColumn]) -> Version:
    """Returns the version that stands for events of which no version was recorded: one with the table's columns, below
    every event."""
    definition = Definition(tuple(ColumnDefinition(c.name, c.type) for c in columns))
    return Version(_BELOW_EVERY_EVENT, definition, Origin.SEEN)


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
    if not column.has_default or column.default in (None, _NULL_DEFAULT):
        return NULL
    return Fill(FillKind.CONSTANT, column)
