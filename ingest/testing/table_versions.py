"""The versions of a random table's definition, as messages of DDL tell them and as the schemas of events show them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from ingest.changelog.connect_schema import columns_of
from ingest.evolution.definition import (
    Cause,
    ColumnDefinition,
    Definition,
    Fill,
    FillKind,
    Origin,
    Place,
    Version,
)
from ingest.testing.ddl_messages import COMMANDS, rewrites
from ingest.testing.oracle import Event
from ingest.testing.source_table import UNKNOWN, SourceColumn, SourceTable, TableChange
from ingest.testing.source_types import source_types
from ingest.testing.table_records import connect_field
from ingest.testing.tables import TableStory
from ingest.values.columns import Column

_STREAMED = {"ddl": -1, "r": 0}


def place_of(event: Event) -> Place:
    """Returns the position of an event that has one, as `changelog.position` places the record of `as_debezium`."""
    return (0, event.lsn, 0, 0, _STREAMED.get(event.op, 1), event.offset, 0)


def told_versions(story: TableStory) -> list[Version]:
    """Returns a version for each change of the definition, in the source's order."""
    found = []
    for event in story.events:
        if event.ddl is not None and event.carried is not None:
            columns = tuple(_told(name, column, story) for name, column in event.carried.columns.items())
            definition = Definition(columns, event.carried.key, event.carried.oid)
            found.append(Version(place_of(event), definition, Origin.TOLD, told_cause(event.ddl, event.carried)))
    return found


def told_cause(change: TableChange, after: SourceTable) -> Cause:
    """Returns the cause of the version that a message of `change` tells. `after`: the definition after it."""
    numbers = (after.columns[change.column].number,) if change.using else ()
    return Cause(COMMANDS.get(change.kind, "ALTER TABLE"), change.using, rewrites(change), numbers=numbers)


def seen_versions(story: TableStory) -> list[Version]:
    """Returns a version for each run of events that show the same definition, in the source's order."""
    found: list[Version] = []
    for event in story.events:
        if event.op in ("null", "t", "ddl") or event.carried is None:
            continue
        definition = Definition(tuple(_seen(event.carried, story)), event.carried.key)
        if not found or found[-1].definition != definition:
            found.append(Version(place_of(event), definition, Origin.SEEN))
    return found


def _told(name: str, column: SourceColumn, story: TableStory) -> ColumnDefinition:
    sent = _column(name, column, story)
    fill = Fill()
    if column.missing is not None:
        default: Any = source_types(story.mode)[column.type].wire(column.missing)
        constant = replace(sent, default=json.dumps(default, ensure_ascii=False), has_default=True)
        fill = Fill(FillKind.CONSTANT, constant)
    elif column.default is UNKNOWN:
        fill = Fill(FillKind.UNKNOWN)
    return ColumnDefinition(name, sent.type, column.number, fill, column.optional, source_type=column.type)


def _seen(table: SourceTable, story: TableStory) -> list[ColumnDefinition]:
    sent = [_column(name, column, story) for name, column in table.columns.items()]
    return [
        ColumnDefinition(c.name, c.type, None, Fill(FillKind.CONSTANT, c) if c.has_default else Fill(), c.optional)
        for c in sent
    ]


def _column(name: str, column: SourceColumn, story: TableStory) -> Column:
    field = connect_field(name, column, source_types(story.mode)[column.type])
    return columns_of({"type": "struct", "fields": [field]})[0]
