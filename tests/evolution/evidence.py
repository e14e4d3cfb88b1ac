"""Versions of a table's definition as the events of a random table tell and show them, and their values as lives read
them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from ingest.changelog.connect_schema import columns_of
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
    is_at_or_above,
)
from ingest.evolution.life import Life, Lives, TypeStep
from ingest.evolution.readings import PlaceRange, Reading, reading
from ingest.testing import UNAVAILABLE, Event, SourceColumn, SourceTable, fold
from ingest.testing import UNKNOWN as NOBODY_KNOWS
from ingest.testing.casts import cast
from ingest.testing.oracle import Row
from ingest.testing.source_table import key_of
from ingest.testing.source_types import Mode, source_types
from ingest.testing.table_versions import place_of, told_cause
from ingest.testing.tables import TableStory
from ingest.values.columns import Column, Encoding, WireType
from ingest.values.types import Kind, LogicalType

_JSON = WireType(Encoding.JSON_VALUE)
_CONSTANTS: dict[str, Any] = {}


@cache
def logical_types(mode: Mode) -> dict[str, LogicalType]:
    fields = [{"field": name, "optional": True, **known.schema} for name, known in source_types(mode).items()]
    return {column.name: column.type for column in columns_of({"type": "struct", "fields": fields})}


def constant(value: Any, type_: LogicalType) -> Fill:
    _CONSTANTS[repr(value)] = value
    return Fill(FillKind.CONSTANT, Column("c", _JSON, type_, True, repr(value), True))


def told(event: Event, story: TableStory, typed: bool = True) -> Version:
    """Returns what a message of the DDL tells. `typed`: Postgres' types imply those of events."""
    change, table = event.ddl, event.carried or SourceTable()
    assert change is not None
    columns = tuple(_told_column(name, column, story.mode, typed) for name, column in table.columns.items())
    definition = Definition(columns, table.key, table.oid)
    return Version(place_of(event), definition, Origin.TOLD, told_cause(change, table))


def _told_column(name: str, column: SourceColumn, mode: Mode, typed: bool) -> ColumnDefinition:
    type_ = logical_types(mode)[column.type]
    fill = NULL if column.missing is None else constant(column.missing, type_)
    fill = UNKNOWN if column.default is NOBODY_KNOWS else fill
    shown = type_ if typed else None
    return ColumnDefinition(name, shown, column.number, fill, column.optional, None, column.type)


def seen(event: Event, mode: Mode) -> Version:
    """Returns what the schema and the key of an event show, with the source's types as parameters."""
    table = event.carried or SourceTable()
    columns = []
    for name, column in table.columns.items():
        type_ = logical_types(mode)[column.type]
        has_default = column.default is not None and column.default is not NOBODY_KNOWS
        fill = constant(column.default, type_) if has_default else NULL
        columns.append(ColumnDefinition(name, type_, None, fill, column.optional, None, column.type))
    return Version(place_of(event), Definition(tuple(columns), table.key), Origin.SEEN)


def read_event(now: Lives, event: Event) -> Reading:
    table = event.carried or SourceTable()
    arrived = [Column(name, _JSON, LogicalType(Kind.UNKNOWN)) for name in table.columns]
    return reading(now, arrived, PlaceRange(place_of(event), place_of(event)))


def filled(fill: Fill) -> Any:
    match fill.kind:
        case FillKind.CONSTANT:
            assert fill.column is not None
            return _CONSTANTS[fill.column.default or ""]
        case FillKind.UNKNOWN:
            return NOBODY_KNOWS
        case _:
            return None


def converted(value: Any, steps: Iterable[TypeStep]) -> Any:
    """Returns a value after all steps. One that the source would have refused, so that it can't come up, is a text."""
    for step in steps:
        if value is not UNAVAILABLE:
            value = NOBODY_KNOWS if step.is_unknown else _cast(value, step.source_type)
    return value


def _cast(value: Any, type_: str) -> Any:
    try:
        return cast(value, type_)
    except ValueError:
        return f"{value!r} is no {type_}"


def image_as_now(image: Row, read: Reading) -> Row:
    """Returns an image with silver's columns and values."""
    chains = {name: steps[1:] for name, steps in read.chains.items()}
    found = {column: image[name] for name, column in read.names.items()}
    found |= {column: filled(fill) for column, fill in read.lacking.items()}
    return {column: converted(value, chains.get(column, ())) for column, value in found.items()}


def _life(now: Lives, name: str, at: Place) -> Life:
    return next(life for life in now.columns if life.is_alive(at) and life.name(at) == name)


def key_as_now(now: Lives, key: Hashable, event: Event) -> Hashable:
    """Returns a key of an event with values of the key columns' newest types."""
    if key is None:
        return None
    names = (event.carried or SourceTable()).key or ()
    values = key if len(names) > 1 and isinstance(key, tuple) else (key,)
    at = place_of(event)
    steps = {name: _life(now, name, at).later_types(at)[1:] for name in names}
    row = {name: converted(value, steps[name]) for name, value in zip(names, values, strict=True)}
    return key_of(row, names)


def event_as_now(now: Lives, event: Event) -> Event:
    read = read_event(now, event)
    keys = [key_as_now(now, key, event) for key in (event.key, event.old_key, event.new_key)]
    image = image_as_now(dict(event.image), read) if event.op in ("c", "u", "r") else {}
    before = None if event.before is None else image_as_now(dict(event.before), read)
    return replace(event, key=keys[0], old_key=keys[1], new_key=keys[2], image=image, before=before)


def rows_of(events: Sequence[Event], now: Lives) -> dict[Hashable, Row]:
    """Returns the newest values per key and column, each as the life of its column at its own position reads it."""
    kept = [e for e in events if e.ddl is None and e.op != "null" and is_at_or_above(place_of(e), now.begin)]
    images = [event_as_now(now, event) for event in kept]
    rows: dict[Hashable, Row] = {key: {} for key in fold(images)}
    for column, life in now.shown.items():
        known = fold(images, [column])
        if life.end is None:
            rows = {key: row for key, row in rows.items() if key in known}
        rows = {key: row | known.get(key, {}) for key, row in rows.items()}
    return rows
