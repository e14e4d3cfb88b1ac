"""Reads the newest change events of topics for `ingest check --live`. Spark reads changelogs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from ingest.changelog.connect_schema import columns_of
from ingest.changelog.registry.frames import Part, PrefixIds, frame_in, schema_id
from ingest.changelog.registry.registered_schema import RegisteredSchema, read_schema
from ingest.errors import ChangelogUnusable, Unreachable
from ingest.sources.contract import Offsets
from ingest.sources.kafka_properties import librdkafka_properties
from ingest.sources.registry import SchemaRegistry
from ingest.values.columns import Column

_ENVELOPE = frozenset({"op", "before", "after", "source", "specversion", "ts_ms", "status"})
"""Names of which a row without an envelope has none."""
_PER_PARTITION = 20
_POLL_SECONDS = 0.5
_TIMEOUT_SECONDS = 20.0


@dataclass(frozen=True)
class RecordShape:
    """A table's columns and key in a record. `types`: column → logical type, only where the record carries its
    schema. `fields`: the columns of the newest record with a schema, of which `at` is the source's time in
    milliseconds."""

    topic: str
    table: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    types: Mapping[str, str] = field(default_factory=dict)
    fields: tuple[Column, ...] = field(default=(), compare=False)
    at: int = field(default=0, compare=False)


@dataclass(frozen=True)
class RegistryLookup:
    """Finds the schemas of records in a registry. `prefix_ids`: the kind of Apicurio's IDs in front of records."""

    registry: SchemaRegistry
    prefix_ids: PrefixIds | None = None
    _known: dict[bytes, RegisteredSchema | None] = field(default_factory=dict)

    def described(self, part: Part, value: bytes, headers: Sequence[tuple[str, bytes]]) -> bytes:
        """Returns a key or value as JSON with its schema and names only, as it is without an ID."""
        frame = frame_in(part, value, headers)
        if frame is None:
            return value
        if frame not in self._known:
            self._known[frame] = self.registry.schema(schema_id(frame, self.prefix_ids))
        found = self._known[frame]
        if found is None:
            return value
        try:
            connect = read_schema(found).connect
        except ChangelogUnusable:
            return value
        return json.dumps({"schema": connect, "payload": _names_in(connect)}).encode()


def _names_in(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a value of a Connect schema, without values. An event is an update of the table that its schema names."""
    names: dict[str, Any] = dict.fromkeys(one["field"] for one in schema["fields"])
    if not {"op", "after"} <= names.keys():
        return names
    after = next(one for one in schema["fields"] if one["field"] == "after")
    server, space, table = ["", "", "", *str(schema.get("name", "")).removesuffix(".Envelope").split(".")][-3:]
    source = {"name": server, "schema": space, "table": table}
    return {"op": "u", "source": source, "after": dict.fromkeys(one["field"] for one in after.get("fields", ()))}


@dataclass(frozen=True)
class UnreadableTopic:
    """A topic whose newest records are no change events. `reason`: what they are instead."""

    topic: str
    reason: str


def newest_shapes(
    properties: Mapping[str, str],
    beginning: Offsets,
    end: Offsets,
    topic_tables: Mapping[str, str],
    table_names: str = "schema.table",
    registered: RegistryLookup | None = None,
) -> list[RecordShape | UnreadableTopic]:
    """Returns a shape for each table in the newest records of each topic, and an entry for each unreadable topic.

    A shape has the columns of all of these records, since partitions are read in no order.

    Args:
        properties: Kafka client properties under their Java names.
        beginning, end: of the topics, as `KafkaAdmin` gives them.
        topic_tables: topic → table, of topics whose records don't name their table.
        table_names: the parts of a table's name, as `source.table_names` has them.
        registered: finds schemas of records that have IDs of them.

    Raises Unreachable where the records don't come in time. A topic without records, or whose newest are all
    tombstones and heartbeats, has no entry.
    """
    shapes: dict[tuple[str, str], RecordShape] = {}
    unread: dict[str, UnreadableTopic] = {}
    for topic, key, value, headers in _newest(properties, beginning, end):
        if not value:
            continue
        described = key, value
        if registered is not None:
            described = registered.described("key", key, headers), registered.described("value", value, headers)
        shape = shape_of(topic, *described, topic_tables.get(topic), table_names)
        if isinstance(shape, RecordShape):
            before = shapes.get((topic, shape.table), shape)
            newest = shape if shape.at >= before.at else before
            columns = tuple(dict.fromkeys((*before.columns, *shape.columns)))
            shapes[topic, shape.table] = replace(newest, columns=columns)
        elif shape is not None:
            unread[topic] = shape
    known = {topic for topic, _ in shapes}
    return [*shapes.values(), *(shape for topic, shape in unread.items() if topic not in known)]


def _newest(
    properties: Mapping[str, str], beginning: Offsets, end: Offsets
) -> Iterator[tuple[str, bytes, bytes, Sequence[tuple[str, bytes]]]]:
    """Yields topic, key, value and headers of the last records of each partition, in their order."""
    places = [
        TopicPartition(topic, partition, max(beginning[topic][partition], at - _PER_PARTITION))
        for topic, partitions in end.items()
        for partition, at in partitions.items()
        if at > beginning[topic][partition]
    ]
    if not places:
        return
    consumer_settings: dict[str, Any] = {
        "group.id": "ingest",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = Consumer(librdkafka_properties(properties) | consumer_settings)
    left = {(place.topic, place.partition) for place in places}
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    try:
        consumer.assign(places)
        while left:
            message = consumer.poll(_POLL_SECONDS)
            if message is None and time.monotonic() > deadline:
                raise Unreachable("the newest records of the topics did not come in time", "run the same command again")
            if message is None:
                continue
            topic, partition, offset = str(message.topic()), message.partition(), message.offset()
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise Unreachable(f"the newest records of {topic} can't be read: {error.str()}", "let the user read it")
            if error is not None or offset is None or offset + 1 >= end[topic][partition or 0]:
                left.discard((topic, partition or 0))
            if error is None:
                sent: Any = message.headers() or ()
                headers = [(str(name), bytes(content or b"")) for name, content in sent]
                yield topic, message.key() or b"", message.value() or b"", headers
    finally:
        consumer.close()


def shape_of(
    topic: str, key: bytes, value: bytes, table: str | None = None, table_names: str = "schema.table"
) -> RecordShape | UnreadableTopic | None:
    """Returns the shape in a record with a value; None for one without a row (a heartbeat, a truncate)."""
    if value[:1] == b"\0":
        return UnreadableTopic(topic, "a schema registry's frame (Avro, Protobuf or JSON Schema): set source.registry")
    document = _json(value)
    if not isinstance(document, dict):
        return UnreadableTopic(topic, "no JSON objects")
    document = _rewritten(document, table)
    wrapped = isinstance(document.get("payload"), dict)
    payload: dict[str, Any] = document["payload"] if wrapped else document
    if "op" not in payload:
        return _without_op(topic, payload)
    source = payload.get("source") or {}
    row = payload.get("after") or payload.get("before")
    if not isinstance(row, dict):
        return None
    columns = _columns(document.get("schema")) if wrapped else ()
    named = table or _table_name(source, table_names) or topic
    types = {column.name: str(column.type) for column in columns}
    at = source.get("ts_ms") or payload.get("ts_ms")
    return RecordShape(topic, named, tuple(types or row), _key(key), types, columns, at if isinstance(at, int) else 0)


def _rewritten(document: dict[str, Any], table: str | None) -> dict[str, Any]:
    """Returns a document in one of the other forms of `changelog.forms` as Debezium's, any other one as it is. `table`:
    the declared one."""
    data: dict[str, Any] | None = document.get("data")
    if "iodebeziumop" in document and isinstance(data, dict):
        source = {name: document.get(f"iodebezium{name}") for name in ("name", "db", "schema", "table")}
        event = {"op": document["iodebeziumop"], "source": source}
        wrapped = isinstance(data.get("payload"), dict)
        return data | ({"payload": data["payload"] | event} if wrapped else event)
    wrapped = isinstance(document.get("payload"), dict) and isinstance(document.get("schema"), dict)
    row: dict[str, Any] = document["payload"] if wrapped else document
    if not row or not _ENVELOPE.isdisjoint(row) or not (table or row.get("__table")):
        return document
    names = {name for name in row if not name.startswith("__")} if row.keys() & {"__op", "__deleted"} else set(row)
    source = {name: row.get(f"__{name}") for name in ("name", "db", "schema", "table")}
    event = {"op": "u", "source": source, "after": {name: row[name] for name in row if name in names}}
    if not wrapped:
        return event
    fields = [one for one in document["schema"].get("fields", ()) if one.get("field") in names]
    return {"schema": {"fields": [document["schema"] | {"field": "after", "fields": fields}]}, "payload": event}


def _table_name(source: Mapping[str, Any], table_names: str) -> str:
    """Returns the table's name in these parts; empty where the event names no table. MySQL's schema is its database."""
    if not source.get("table"):
        return ""
    space = source.get("schema") or source.get("db")
    database = source.get("db") if source.get("schema") else None
    parts = {"server": source.get("name"), "database": database, "schema": space, "table": source["table"]}
    return ".".join(name for part in table_names.split(".") if (name := parts[part]))


def _without_op(topic: str, payload: Mapping[str, Any]) -> UnreadableTopic | None:
    if "specversion" in payload:
        return UnreadableTopic(topic, "CloudEvents without Debezium's attributes (iodebeziumop, ...)")
    is_heartbeat, is_boundary = payload.keys() <= {"ts_ms", "ts_us", "ts_ns"}, {"status", "id"} <= payload.keys()
    if is_heartbeat or (is_boundary and "ts_ms" in payload):
        return None
    return UnreadableTopic(topic, "rows without an envelope, whose table nothing names: name it in source.topic_tables")


def _columns(schema: Any) -> tuple[Column, ...]:
    """Returns the columns from the schema of the envelope's `after`; empty if there is none."""
    fields = schema.get("fields", ()) if isinstance(schema, dict) else ()
    image = next((one for one in fields if one.get("field") == "after"), None)
    if image is None:
        return ()
    try:
        return columns_of(image)
    except ChangelogUnusable:
        return ()


def _key(key: bytes) -> tuple[str, ...]:
    document = _json(key) if key else None
    if isinstance(document, dict) and isinstance(document.get("payload"), dict):
        document = document["payload"]
    return tuple(document) if isinstance(document, dict) else ()


def _json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
