"""The changes of a table's definition that its events show, for changelogs without messages of the DDL itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ingest.testing.oracle import Event
from ingest.testing.source_table import UNKNOWN, SourceColumn, SourceTable, TableChange, key_of, same_name


def without_ddl(events: Sequence[Event]) -> list[Event]:
    """Returns the events that a source without a trigger sends."""
    return [event for event in events if event.ddl is None]


def assumed(events: Sequence[Event], renames: Mapping[str, str] | None = None, schemas: bool = True) -> list[Event]:
    """Returns the events and, before each that carries another definition than the event before it in source order, the
    changes that lead there. `fold` of the result is the reference of a run without the trigger.

    A new column fills the rows that exist with its default, as the schema shows it. Columns are compared by name: a
    renamed column is a dropped and an added one, unless only the case changes or `renames` (old name → new name)
    declares it. Without schemas (`schemas=False`) a column that is missing is null, not dropped, and no default is
    known."""
    changes: list[Event] = []
    known: SourceTable | None = None
    for event in sorted(events, key=lambda e: (e.lsn, e.op != "r", e.offset)):
        if event.op in ("null", "ddl") or event.carried is None:
            continue
        arrived = _as_sent(event.carried) if schemas else _without_schema(event, known)
        if known is None:
            steps = [TableChange("create.table", table=arrived)]
        else:
            steps = _differences(known, arrived, renames or {})
        changes += [Event("ddl", len(changes) + n, event.lsn, ddl=step) for n, step in enumerate(steps)]
        known = arrived
    return [*changes, *events]


def lagging(events: Sequence[Event], changes: int) -> list[Event]:
    """Returns the events as a connector sends them that decodes them when the source is `changes` changes of the
    definition ahead: Debezium reads defaults, NOT NULL and keys from the catalog, not from the log. A key from the
    future stands in a record only if the event's own key holds its columns."""
    later = [event.carried for event in events if event.ddl is not None]
    sent = []
    passed = 0
    for event in events:
        passed += event.ddl is not None
        ahead = later[min(passed - 1 + changes, len(later) - 1)] if later else None
        sent.append(_decoded_late(event, ahead) if event.ddl is None and ahead is not None else event)
    return sent


def _decoded_late(event: Event, ahead: SourceTable) -> Event:
    if event.carried is None:
        return event
    columns = {
        name: replace(column, default=ahead.columns[name].default, optional=ahead.columns[name].optional)
        if name in ahead.columns
        else column
        for name, column in event.carried.columns.items()
    }
    key = event.carried.key
    if event.key is None or not ahead.key or not key or not set(ahead.key) <= set(key) or ahead.key == key:
        return replace(event, carried=replace(event.carried, columns=columns))

    keys = [
        None if value is None else key_of(dict(zip(key, _parts(value, key), strict=True)), ahead.key)
        for value in (event.key, event.old_key, event.new_key)
    ]
    carried = SourceTable(columns, ahead.key, event.carried.oid)
    return replace(event, carried=carried, key=keys[0], old_key=keys[1], new_key=keys[2])


def _parts(key: object, names: Sequence[str]) -> tuple[object, ...]:
    return key if len(names) > 1 and isinstance(key, tuple) else (key,)


def _as_sent(table: SourceTable) -> SourceTable:
    """Returns the definition that a schema shows, which holds no default that only the source can evaluate."""
    sent = {n: replace(c, default=None) if c.default is UNKNOWN else c for n, c in table.columns.items()}
    return replace(table, columns=sent)


def _without_schema(event: Event, known: SourceTable | None) -> SourceTable:
    """Returns the columns known so far and those of the event's images, without types and defaults."""
    names = {**(known.columns if known else {}), **event.image, **(event.before or {})}
    key = event.carried.key if event.carried else None
    return SourceTable({name: SourceColumn() for name in names}, key)


def _differences(before: SourceTable, after: SourceTable, renames: Mapping[str, str]) -> list[TableChange]:
    gone = [name for name in before.columns if name not in after.columns]
    new = [name for name in after.columns if name not in before.columns]
    renamed = {old: name for old in gone for name in new if same_name(old, name) or renames.get(old) == name}
    now = {renamed.get(name, name): column for name, column in before.columns.items()}
    key = before.key and tuple(renamed.get(name, name) for name in before.key)
    kept = [name for name in after.columns if name in now]
    return [
        *(TableChange("rename.column", old, name=name) for old, name in renamed.items()),
        *(TableChange("drop.column", name) for name in gone if name not in renamed),
        *(TableChange("add.column", n, to=after.columns[n]) for n in new if n not in renamed.values()),
        *(
            TableChange("alter.column.type", name, to=after.columns[name])
            for name in kept
            if now[name].type != after.columns[name].type
        ),
        *([TableChange("alter.key", key=after.key)] if after.key is not None and after.key != key else []),
    ]
