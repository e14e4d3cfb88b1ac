"""A schema as a registry holds it, and what is read of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ingest.changelog.registry.avro_schema import READ_FIELD, avro_schema
from ingest.changelog.registry.json_schema import connect_of_json_schema
from ingest.changelog.registry.schema_fault import unreadable


class Kind(StrEnum):
    """The language of a schema."""

    AVRO = "avro"
    JSON_SCHEMA = "json-schema"
    CONNECT = "connect-json"


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema. `references`: name → text of the schemas that it refers to, those before that others need."""

    kind: Kind
    text: str
    references: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class ReadSchema:
    """How records with a schema are read. `connect`: Kafka Connect's schema of them, as its JsonConverter writes it.
    `writer`, `reader`: Avro schemas by which Spark reads them; empty for JSON."""

    kind: Kind
    connect: Mapping[str, Any]
    writer: str = ""
    reader: str = ""

    @property
    def read_connect(self) -> Mapping[str, Any]:
        """Connect's schema of what Spark reads by `reader`: with `READ_FIELD` first."""
        return {**self.connect, "fields": [{"field": READ_FIELD, "type": "boolean"}, *self.connect["fields"]]}

    @property
    def embedded(self) -> str:
        """The text of the schema to embed in a record: of an event that of its row, otherwise the whole."""
        after = next((f for f in self.connect.get("fields", ()) if f["field"] == "after" and "fields" in f), None)
        names = {field["field"] for field in self.connect.get("fields", ())}
        shown = self.connect
        if after is not None and "op" in names:
            shown = {"type": "struct", "fields": [after]}
        return json.dumps(shown, ensure_ascii=False, separators=(",", ":"))


def kind_of(text: str) -> Kind:
    """Returns the language of a schema by its text."""
    schema = _json(text)
    if not isinstance(schema, dict):
        return Kind.AVRO
    if schema.get("type") == "struct":
        return Kind.CONNECT
    return Kind.AVRO if schema.get("type") in ("record", "enum", "fixed", "map") else Kind.JSON_SCHEMA


def read_schema(schema: RegisteredSchema) -> ReadSchema:
    """Returns how records with the schema are read. Raises ChangelogUnusable where that isn't known exactly."""
    if schema.kind is Kind.CONNECT:
        return ReadSchema(schema.kind, _object(schema.text))
    if schema.kind is Kind.JSON_SCHEMA:
        others = {name: _object(text) for name, text in schema.references}
        return ReadSchema(schema.kind, connect_of_json_schema(_object(schema.text), others))
    found = avro_schema(_json(schema.text), [_json(text) for _, text in schema.references])
    return ReadSchema(schema.kind, found.connect, found.writer, found.reader)


def _object(text: str) -> dict[str, Any]:
    schema = _json(text)
    if not isinstance(schema, dict):
        raise unreadable("is no JSON object")
    return schema


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise unreadable("is no JSON") from None
