"""Versions of a table's definition as the schemas of its events show them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

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
from ingest.evolution.life import Life
from ingest.evolution.lives import lives
from ingest.evolution.policies import TableColumn
from ingest.values.columns import Column, Encoding
from ingest.values.types import MAX_DIGITS, Kind, LogicalType, widest, with_scale

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


@dataclass(frozen=True)
class CatalogColumn:
    """A column as the source's catalog has it. `number`: the attribute number, which is higher than those of columns
    that were there before. `fill`: what rows from before it read; None if the catalog doesn't tell."""

    number: int
    fill: Fill | None


def assumed_columns(known: Collection[Version], shown: Collection[Version]) -> tuple[Life, ...]:
    """Returns the columns that `shown` adds to the `known` versions, and of which the values in rows from before are
    assumed."""
    before = {(life.column, life.begin) for life in lives(known).columns}
    now = lives({*known, *shown}).shown.values()
    return tuple(
        life
        for life in now
        if life.end is None and life.begin is not None and life.origin is Origin.SEEN
        if (life.column, life.begin) not in before
    )


def read_versions(
    known: Collection[Version], assumed: Collection[Life], catalog: Mapping[str, CatalogColumn]
) -> frozenset[Version]:
    """Returns versions of what the source's catalog tells of `assumed_columns`, at the positions where events show
    them. `known`: all versions. `catalog`: column of the table → what is read there."""
    versions = set()
    for version in known:
        new = {life.column for life in assumed if life.begin == version.since}
        fills = {name: one.fill for name, one in catalog.items() if name in new and one.fill is not None}
        told = [column for column in version.definition.columns if column.name in fills]
        if version.origin is Origin.SEEN and told:
            before = {c.name for v in known if v.since < version.since for c in v.definition.columns}
            highest = max((catalog[name].number for name in before - new if name in catalog), default=0)
            # A column with a lower number than those that were there before was not added, but left out of events.
            read = {c.name: _read(c, fills[c.name], catalog[c.name].number > highest) for c in told}
            others = new - read.keys()  # These stay assumed.
            columns = [read.get(c.name, c) for c in version.definition.columns if c.name not in others]
            definition = replace(version.definition, columns=tuple(columns), is_partial=bool(others))
            versions.add(Version(version.since, definition, Origin.READ))
    return frozenset(versions)


def _read(column: ColumnDefinition, fill: Fill, is_added: bool) -> ColumnDefinition:
    """Returns a column with what the catalog tells of rows from before. `is_added`: False if it was there before."""
    constant = fill.column
    is_other = constant is not None and (column.type is None or widest(constant.type, column.type) is None)
    return replace(column, fill=fill if is_added and not is_other else UNKNOWN)


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
    """Returns versions with other names of columns in those that no message tells. `names`: name before → name."""
    return frozenset(
        replace(version, definition=replace(version.definition, columns=_renamed(version.definition.columns, names)))
        if version.origin is not Origin.TOLD
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
