"""Writes the events of a random table as records of Debezium's Postgres connector, and reads tables back."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any
from zlib import crc32

from ingest.changelog.ddl_message import DDL_MESSAGE
from ingest.testing.ddl_messages import message_content
from ingest.testing.oracle import UNAVAILABLE, Event, Row
from ingest.testing.source_table import UNKNOWN, SourceColumn, SourceTable
from ingest.testing.source_types import source_types
from ingest.testing.table_deliveries import Record
from ingest.testing.tables import TableStory
from ingest.testing.type_forms import SourceType, unavailable

_MESSAGE = {
    "type": "struct",
    "optional": True,
    "field": "message",
    "fields": [
        {"type": "string", "optional": True, "field": "prefix"},
        {"type": "bytes", "optional": True, "field": "content"},
    ],
}


def as_debezium(
    story: TableStory,
    events: Iterable[Event],
    schema: bool = True,
    trigger: bool = True,
    server: str = "srv",
    topic: str | None = None,
    partitions: int = 1,
) -> list[Record]:
    """Returns events of a story as records, in the form that `ingest replay` reads. The offsets are all 0:
    `interleaved` numbers the records.

    `schema`: records carry their schemas. `trigger`: changes of the definition are messages in the topic
    `server.message`; else they are left out. `topic`: of the table, if not its own. `partitions`: of the topic; a
    record's partition is chosen by its key."""
    writer = _Writer(story, schema, server, topic or f"{server}.{story.name}", partitions)
    return [writer.message(e) if e.ddl else writer.record(e) for e in events if trigger or e.ddl is None]


def declared_columns(story: TableStory) -> dict[str, str] | None:
    """Returns the types to declare for records without schemas (`tables.json`), if no column ever had another one; None
    if one had, or has a type that can't be declared."""
    types = source_types(story.mode)
    found: dict[str, str] = {}
    for event in story.events:
        for name, column in (event.carried or SourceTable()).columns.items():
            if found.setdefault(name, types[column.type].declared) != types[column.type].declared:
                return None
    return found if all(found.values()) else None


def read_rows(rows: Iterable[Mapping[str, Any]], story: TableStory) -> list[Row]:
    """Returns rows that `ingest replay` wrote as JSON, with the columns that the story's table has at the end, by name
    without regard to case, and values of their types."""
    types = source_types(story.mode)
    found = []
    for row in rows:
        values = {name.lower(): value for name, value in row.items()}
        named = {name: (column, values.get(name.lower())) for name, column in story.table.columns.items()}
        found.append({n: None if v is None else types[column.type].read(v) for n, (column, v) in named.items()})
    return found


def unmatched(expected: Iterable[Mapping[str, Any]], found: Iterable[Row], story: TableStory) -> tuple[list[Row], ...]:
    """Returns the rows of `expected` that `found` lacks, and those that it has in excess, both over the columns at the
    end. `expected`: rows of `fold`, in which UNKNOWN equals every value."""
    rest = list(found)
    missing = []
    rows = [{name: row.get(name) for name in story.table.columns} for row in expected]
    for row in sorted(rows, key=lambda row: sum(value is UNKNOWN for value in row.values())):
        known = {name: value for name, value in row.items() if value is not UNKNOWN}
        same = next((n for n, other in enumerate(rest) if all(other[name] == known[name] for name in known)), None)
        if same is None:
            missing.append(row)
        else:
            del rest[same]
    return missing, rest


def connect_field(name: str, column: SourceColumn, known: SourceType) -> dict[str, Any]:
    """Returns the field of a column in the schema of an image. It shows a default only if that is a constant."""
    shown = known.has_defaults and column.default is not None and column.default is not UNKNOWN
    default = {"default": known.wire(column.default)} if shown else {}
    return {**known.schema, "field": name, "optional": column.optional, **default}


class _Writer:
    def __init__(self, story: TableStory, schema: bool, server: str, topic: str, partitions: int) -> None:
        self._story = story
        self._types = source_types(story.mode)
        self._has_schema = schema
        self._server = server
        self._topic = topic
        self._partitions = partitions

    def record(self, event: Event) -> Record:
        """Returns the record of an event on rows."""
        table = event.carried or SourceTable()
        key = self._key(event.key, table)
        partition = 0 if key is None else crc32(json.dumps(key).encode()) % self._partitions
        record: Record = {"topic": self._topic, "partition": partition, "offset": 0, "key": key, "value": None}
        if event.new_key is not None:
            record["headers"] = [{"key": "__debezium.newkey", "value": self._key(event.new_key, table)}]
        if event.op == "null":
            return record
        after = self._image(event.image, table) if event.op in ("c", "u", "r") else None
        before = None if event.before is None else self._image(event.before, table)
        if event.op == "d" and before is None:
            before = self._key_image(event.key, table)
        schema, name = self._story.name.split(".", 1)
        source = self._source(event, schema, name)
        value = {"before": before, "after": after, "source": source, "op": event.op, "ts_ms": event.lsn}
        fields = [self._field(name, table) for name in table.columns]
        images = [{"type": "struct", "optional": True, "field": part, "fields": fields} for part in ("before", "after")]
        return record | {"value": self._envelope(value, images)}

    def message(self, event: Event) -> Record:
        """Returns the record of a message about a change of the definition."""
        content = b64encode(message_content(self._story, event).encode()).decode()
        value = {
            "op": "m",
            "ts_ms": event.lsn,
            "source": self._source(event, "", ""),
            "message": {"prefix": DDL_MESSAGE, "content": content},
        }
        key: Any = {"prefix": DDL_MESSAGE}
        if self._has_schema:
            fields = [{"type": "string", "optional": True, "field": "prefix"}]
            key = {"schema": {"type": "struct", "fields": fields}, "payload": key}
        record = {"topic": f"{self._server}.message", "partition": 0, "offset": 0, "key": key}
        return record | {"value": self._envelope(value, [_MESSAGE])}

    def _source(self, event: Event, schema: str, table: str) -> dict[str, Any]:
        snapshot = "true" if event.op == "r" else "false"
        named = {"connector": "postgresql", "name": self._server, "db": "shop", "schema": schema, "table": table}
        return {**named, "snapshot": snapshot, "lsn": event.lsn, "ts_ms": event.lsn}

    def _envelope(self, value: dict[str, Any], images: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        if not self._has_schema:
            return value
        op = {"type": "string", "optional": False, "field": "op"}
        at = {"type": "int64", "optional": True, "field": "ts_ms"}
        return {"schema": {"type": "struct", "optional": False, "fields": [*images, op, at]}, "payload": value}

    def _field(self, name: str, table: SourceTable) -> dict[str, Any]:
        return connect_field(name, table.columns[name], self._types[table.columns[name].type])

    def _key(self, key: Hashable, table: SourceTable) -> Any:
        if key is None or not table.key:
            return None
        payload = self._image(self._key_values(key, table), table)
        if not self._has_schema:
            return payload
        fields = [self._field(name, table) for name in table.key]
        return {"schema": {"type": "struct", "optional": False, "fields": fields}, "payload": payload}

    def _key_image(self, key: Hashable, table: SourceTable) -> dict[str, Any]:
        """Returns the before image of a delete without REPLICA IDENTITY FULL: other columns than the key's are null, or
        fillers where null is not allowed."""
        fillers = {
            name: None if column.optional else _filler(self._types[column.type])
            for name, column in table.columns.items()
        }
        return fillers | self._image(self._key_values(key, table), table)

    def _key_values(self, key: Hashable, table: SourceTable) -> Row:
        names = table.key or ()
        return dict(zip(names, key if len(names) > 1 and isinstance(key, tuple) else (key,), strict=True))

    def _image(self, row: Mapping[str, Any], table: SourceTable) -> dict[str, Any]:
        return {name: _wire(value, self._types[table.columns[name].type]) for name, value in row.items()}


def _wire(value: Any, known: SourceType) -> Any:
    if value is UNAVAILABLE:
        return unavailable(known.schema)
    return None if value is None else known.wire(value)


def _filler(known: SourceType) -> Any:
    match known.schema["type"]:
        case "boolean":
            return False
        case "string" | "bytes":
            return ""
        case "array" | "map" | "struct":
            return known.wire(known.values[0])
        case _:
            return 0
