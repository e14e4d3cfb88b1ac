"""Derives Kafka Connect's schema from an Avro schema, and the schemas by which Spark reads the records as Connect
writes them: numbers and bytes, without Avro's logical types.

Source: Confluent's and Apicurio's `AvroData`, which keep Connect's schema in properties `connect.…`, and Avro's
specification for schemas of other producers. A `default` without `connect.default` belongs to Avro's readers and not to
the column.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ingest.changelog.registry.schema_fault import unreadable

READ_FIELD = "_ingest_read"
"""First field of the reader's schema: true in records that could be read, null in others."""

_NUMBERS = {"boolean": "boolean", "int": "int32", "long": "int64", "float": "float", "double": "double"}
_PHYSICAL = _NUMBERS | {"bytes": "bytes", "fixed": "bytes", "string": "string", "enum": "string"}
_PRIMITIVE = {*_NUMBERS, "bytes", "string", "null"}
_CONNECT, _TIME = "org.apache.kafka.connect.data.", "io.debezium.time."
_LOGICAL = {
    ("int", "date"): f"{_CONNECT}Date",
    ("int", "time-millis"): f"{_CONNECT}Time",
    ("long", "time-micros"): f"{_TIME}MicroTime",
    ("long", "timestamp-millis"): f"{_CONNECT}Timestamp",
    ("long", "local-timestamp-millis"): f"{_CONNECT}Timestamp",
    ("long", "timestamp-micros"): f"{_TIME}MicroTimestamp",
    ("long", "local-timestamp-micros"): f"{_TIME}MicroTimestamp",
    ("long", "timestamp-nanos"): f"{_TIME}NanoTimestamp",
    ("long", "local-timestamp-nanos"): f"{_TIME}NanoTimestamp",
    ("string", "uuid"): "io.debezium.data.Uuid",
}
_UNKNOWN_PRECISION = 64
"""What `AvroData` writes for decimals whose precision Connect doesn't know."""
_MAP_ENTRY = "io.confluent.connect.avro.MapEntry"


@dataclass(frozen=True)
class AvroSchema:
    """An Avro schema as it is read. `connect`: Connect's schema. `writer`, `reader`: the schemas for Spark."""

    connect: Mapping[str, Any]
    writer: str
    reader: str


@dataclass
class _Types:
    """Named types: full name → schema, with the namespace in which its own names stand."""

    named: dict[str, tuple[Mapping[str, Any], str]] = field(default_factory=dict)

    def add(self, schema: Any, namespace: str) -> None:
        """Adds the named types that a schema defines."""
        if isinstance(schema, list):
            for branch in schema:
                self.add(branch, namespace)
        elif isinstance(schema, dict):
            kind = schema.get("type")
            if kind in ("record", "error", "enum", "fixed"):
                name = full_name(schema, namespace)
                namespace = name.rpartition(".")[0]
                self.named[name] = schema, namespace
                for one in schema.get("fields", ()):
                    self.add(one["type"], namespace)
            else:
                for inside in (kind, schema.get("items"), schema.get("values")):
                    self.add(inside, namespace)

    def find(self, name: str, namespace: str) -> tuple[Mapping[str, Any], str]:
        """Returns a named type. Raises ChangelogUnusable for an unknown name."""
        for known in (name if "." in name or not namespace else f"{namespace}.{name}", name):
            if known in self.named:
                return self.named[known]
        raise unreadable(f"names a type {name!r} that it does not define")


def full_name(schema: Mapping[str, Any], namespace: str) -> str:
    """Returns the name of a record, enum or fixed, with its namespace."""
    name = str(schema["name"])
    space = str(schema.get("namespace", namespace))
    return name if "." in name or not space else f"{space}.{name}"


def avro_schema(schema: Any, references: Sequence[Any] = ()) -> AvroSchema:
    """Returns how records with an Avro schema are read. `references`: schemas whose types it names.

    Raises ChangelogUnusable for a schema that is no record's, unions of several types, and types within themselves."""
    types = _Types()
    for one in (*references, schema):
        types.add(one, "")
    reading = _Reading(types)
    connect = reading.connect(schema, "", ())
    if connect["type"] != "struct":
        raise unreadable("is no record's")
    writer = reading.physical(schema, "", set())
    read = {"name": READ_FIELD, "type": "boolean", "default": True}
    reader = {**writer, "fields": [read, *writer["fields"]]}
    return AvroSchema(connect, json.dumps(writer), json.dumps(reader))


class _Reading:
    def __init__(self, types: _Types) -> None:
        self._types = types

    def connect(self, schema: Any, namespace: str, within: tuple[str, ...]) -> dict[str, Any]:
        """Returns Connect's schema of a type. `within`: names of the records around it."""
        if isinstance(schema, list):
            branches = [branch for branch in schema if branch != "null"]
            if len(branches) != 1:
                raise unreadable("has a union of several types")
            optional = len(branches) < len(schema)
            return self.connect(branches[0], namespace, within) | ({"optional": True} if optional else {})
        if isinstance(schema, str):
            if schema not in _PRIMITIVE:
                return self.connect(*self._types.find(schema, namespace), within)
            schema = {"type": schema}
        kind = schema["type"]
        if not isinstance(kind, str) or kind not in (*_PHYSICAL, "record", "error", "array", "map"):
            return self.connect(kind, namespace, within)
        return _described(self._typed(kind, schema, namespace, within), kind, schema)

    def _typed(self, kind: str, schema: Mapping[str, Any], namespace: str, within: tuple[str, ...]) -> dict[str, Any]:
        if kind in _PHYSICAL:
            narrow = schema.get("connect.type") if kind == "int" else None
            return {"type": narrow or _PHYSICAL[kind], "optional": False}
        if kind == "array":
            items = self.connect(schema["items"], namespace, within)
            if items.get("name") == _MAP_ENTRY:
                (key, value) = items["fields"]
                return {"type": "map", "keys": _unnamed(key), "values": _unnamed(value), "optional": False}
            return {"type": "array", "items": items, "optional": False}
        if kind == "map":
            keys, values = {"type": "string", "optional": False}, self.connect(schema["values"], namespace, within)
            return {"type": "map", "keys": keys, "values": values, "optional": False}
        name = full_name(schema, namespace)
        if name in within:
            raise unreadable(f"has a record {name} within itself")
        inner = name.rpartition(".")[0]
        fields = [
            self.connect(one["type"], inner, (*within, name)) | {"field": one["name"]} for one in schema["fields"]
        ]
        return {"type": "struct", "fields": fields, "optional": False, "name": name}

    def physical(self, schema: Any, namespace: str, defined: set[str]) -> Any:
        """Returns the type without its properties, but for names; a named one is defined where it is met first."""
        if isinstance(schema, list):
            return [self.physical(branch, namespace, defined) for branch in schema]
        if isinstance(schema, str):
            return schema if schema in _PRIMITIVE else self._once(*self._types.find(schema, namespace), defined)
        kind = schema["type"]
        if kind in ("record", "error", "enum", "fixed"):
            return self._once(schema, namespace, defined)
        if kind == "array":
            return {"type": "array", "items": self.physical(schema["items"], namespace, defined)}
        if kind == "map":
            return {"type": "map", "values": self.physical(schema["values"], namespace, defined)}
        return self.physical(kind, namespace, defined)

    def _once(self, schema: Mapping[str, Any], namespace: str, defined: set[str]) -> Any:
        name = full_name(schema, namespace)
        if name in defined:
            return name
        defined.add(name)
        kept = {key: schema[key] for key in ("symbols", "size") if key in schema}
        inner = name.rpartition(".")[0]
        # Without a dot, a namespace of its own keeps the name out of the one around it.
        found = {"type": "record" if schema["type"] == "error" else schema["type"], "name": name, "namespace": inner}
        if "fields" in schema:
            found["fields"] = [
                {"name": one["name"], "type": self.physical(one["type"], inner, defined)} for one in schema["fields"]
            ]
        return found | kept


def _unnamed(field: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the schema of a field, without the field's name."""
    return {name: value for name, value in field.items() if name != "field"}


def _described(connect: dict[str, Any], kind: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Returns Connect's schema with the semantic name, the parameters and the default of an Avro schema."""
    logical = schema.get("logicalType")
    parameters = dict(schema.get("connect.parameters", {}))
    name = schema.get("connect.name") or _LOGICAL.get((kind, str(logical)))
    if logical == "decimal" and kind in ("bytes", "fixed"):
        name = f"{_CONNECT}Decimal"
        parameters.setdefault("scale", str(schema.get("scale", 0)))
        precision = schema.get("precision")
        if precision is not None and ("connect.name" not in schema or precision != _UNKNOWN_PRECISION):
            parameters.setdefault("connect.decimal.precision", str(precision))
    if name:
        connect["name"] = name
    if "connect.version" in schema:
        connect["version"] = schema["connect.version"]
    if parameters:
        connect["parameters"] = parameters
    if "connect.default" in schema:
        connect["default"] = _default(connect["type"], schema["connect.default"])
    return connect


def _default(kind: str, value: Any) -> Any:
    """Returns a default as Connect's JsonConverter writes it. Avro has a character for each byte."""
    return b64encode(value.encode("latin-1")).decode() if kind == "bytes" and isinstance(value, str) else value
