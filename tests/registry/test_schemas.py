"""Schemas of a registry are read as Kafka Connect's, or refused with a reason."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ingest.changelog.connect_schema import columns_of
from ingest.changelog.registry.avro_schema import READ_FIELD, avro_schema
from ingest.changelog.registry.frames import Lookup, PrefixIds, SchemaId, schema_id
from ingest.changelog.registry.json_schema import connect_of_json_schema
from ingest.changelog.registry.registered_schema import Kind, RegisteredSchema, kind_of, read_schema
from ingest.errors import ChangelogUnusable

ID = 17
GUID = "89791762-2336-186f-9674-299b90a8e4af"


@pytest.mark.parametrize(
    ("frame", "prefix_ids", "expected"),
    [
        (b"\0\0\0\0\x11", None, SchemaId(Lookup.CONFLUENT, "17")),
        (b"\0\0\0\0\x11", "content", SchemaId(Lookup.CONTENT, "17")),
        (b"\0\0\0\0\x11", "global", SchemaId(Lookup.GLOBAL, "17")),
        (b"\0" + ID.to_bytes(8), None, SchemaId(Lookup.GLOBAL, "17")),
        (b"\0" + ID.to_bytes(8), "content", SchemaId(Lookup.CONTENT, "17")),
        (b"h\0" + ID.to_bytes(4), "global", SchemaId(Lookup.CONFLUENT, "17")),
        (b"h\1" + bytes.fromhex(GUID.replace("-", "")), None, SchemaId(Lookup.GUID, GUID)),
        (b"g" + ID.to_bytes(8), "content", SchemaId(Lookup.GLOBAL, "17")),
        (b"c" + ID.to_bytes(8), None, SchemaId(Lookup.CONTENT, "17")),
        (b"j17", None, SchemaId(Lookup.GLOBAL, "17")),
        (b"j17", "content", SchemaId(Lookup.CONTENT, "17")),
    ],
)
def test_frame_tells_an_id_and_its_kind(frame: bytes, prefix_ids: PrefixIds | None, expected: SchemaId) -> None:
    assert schema_id(frame, prefix_ids) == expected


def types(schema: dict[str, Any]) -> dict[str, str]:
    return {column.name: f"{column.type}{'?' if column.optional else ''}" for column in columns_of(schema)}


def record(*fields: tuple[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": n, "type": t} for n, t in fields], **more}


def test_logical_types_of_other_producers_are_semantic_types() -> None:
    def logical(kind: str, logical_type: str, **more: Any) -> dict[str, Any]:
        return {"type": kind, "logicalType": logical_type, **more}

    schema = record(
        ("money", ["null", logical("bytes", "decimal", precision=10, scale=2)]),
        ("large", logical("fixed", "decimal", precision=40, scale=0, size=20, name="Large")),
        ("day", logical("int", "date")),
        ("time", logical("long", "time-micros")),
        ("at", [logical("long", "timestamp-millis"), "null"]),
        ("exact", logical("long", "local-timestamp-nanos")),
        ("uuid", logical("string", "uuid")),
        ("mood", {"type": "enum", "name": "Mood", "symbols": ["A"]}),
        ("tags", {"type": "array", "items": ["null", "string"]}),
        ("labels", {"type": "map", "values": "int"}),
        ("inner", record(("x", "float"), name="Inner")),
        ("wrapped", {"type": {"type": "int", "connect.type": "int16"}}),
    )
    assert types(dict(avro_schema(schema).connect)) == {
        "money": "decimal(10,2)?",
        "large": "decimal_text",
        "day": "date",
        "time": "time",
        "at": "timestamp?",
        "exact": "timestamp",
        "uuid": "uuid",
        "mood": "string",
        "tags": "array<string>",
        "labels": "map<string,int32>",
        "inner": "struct<x:float32>",
        "wrapped": "int16",
    }


def test_default_is_that_of_the_column_only() -> None:
    schema = record(("a", "string"), ("b", {"type": "bytes", "connect.default": "\u00ff\u0000"}))
    schema["fields"][0]["default"] = "of Avro's readers"
    first, second = columns_of(avro_schema(schema).connect)
    assert not first.has_default
    assert second.default == '"/wA="'


def test_named_types_are_found_in_their_namespace_and_in_references() -> None:
    value = record(("x", "int"), name="Value", namespace="shop.item")
    schema = record(("before", ["null", "Value"]), ("after", ["null", "Value"]), ("op", "string"), name="Envelope")
    schema["namespace"] = "shop.item"
    found = avro_schema(schema, [value])
    assert [one.get("name") for one in found.connect["fields"]] == ["shop.item.Value", "shop.item.Value", None]
    writer = json.loads(found.writer)
    assert writer["fields"][0]["type"][1]["fields"] == [{"name": "x", "type": "int"}]
    assert writer["fields"][1]["type"][1] == "shop.item.Value"  # defined once
    assert json.loads(found.reader)["fields"][0]["name"] == READ_FIELD


def test_event_embeds_the_schema_of_its_row_only() -> None:
    schema = record(("before", "string"), ("after", ["null", record(("x", "int"), name="Row")]), ("op", "string"))
    read = read_schema(RegisteredSchema(Kind.AVRO, json.dumps(schema)))
    assert [one["field"] for one in json.loads(read.embedded)["fields"]] == ["after"]
    row = read_schema(RegisteredSchema(Kind.AVRO, json.dumps(record(("x", "int"), ("after", "int")))))
    assert [one["field"] for one in json.loads(row.embedded)["fields"]] == ["x", "after"]


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("string", "is no record's"),
        (record(("a", ["int", "string"])), "union of several types"),
        (record(("a", ["null", "R"])), "within itself"),
        (record(("a", "Unknown")), "names a type 'Unknown'"),
    ],
)
def test_avro_schema_that_is_not_read_exactly_is_refused(schema: Any, reason: str) -> None:
    with pytest.raises(ChangelogUnusable, match=reason):
        read_schema(RegisteredSchema(Kind.AVRO, json.dumps(schema)))


def test_json_schema_of_connect_gives_its_columns_in_order() -> None:
    def optional(**schema: Any) -> dict[str, Any]:
        return {"oneOf": [{"type": "null"}, schema]}

    decimal = {"title": "org.apache.kafka.connect.data.Decimal", "connect.type": "bytes"}
    digits = {"connect.parameters": {"scale": "2", "connect.decimal.precision": "10"}}
    small = {"type": "integer", "connect.type": "int16", "connect.index": 1, "default": 7}
    row = {
        "type": "object",
        "connect.index": 1,
        "properties": {
            "b": small,
            "a": {"type": "integer", "connect.type": "int32", "title": "io.debezium.time.Date", "connect.index": 0},
            "c": optional(type="number", **decimal, **digits) | {"connect.index": 2},
            "d": optional(type="string", **decimal, **digits) | {"connect.index": 3},
            "e": {"type": "number", "connect.type": "float32", "connect.index": 4},
            "f": {
                "type": "object",
                "connect.type": "map",
                "connect.index": 5,
                "additionalProperties": optional(type="string"),
            },
            "g": {"type": "array", "items": optional(type="boolean"), "connect.index": 6},
        },
    }
    found = connect_of_json_schema(
        {"type": "object", "properties": {"after": {"$ref": "#/definitions/Row"}}} | {"definitions": {"Row": row}}, {}
    )
    assert types(found["fields"][0]) == {
        "a": "date",
        "b": "int16",
        "c": "decimal(10,2)?",
        "d": "decimal(10,2)?",
        "e": "float32",
        "f": "map<string,string>",
        "g": "array<boolean>",
    }
    assert columns_of(found["fields"][0])[1].default == "7"


def test_json_schema_of_another_producer() -> None:
    schema = {
        "type": "object",
        "required": ["id"],
        "properties": {
            "id": {"type": "integer"},
            "at": {"type": "string", "format": "date-time", "title": "When"},
            "name": {"type": ["string", "null"]},
            "size": {"type": "number"},
            "address": {"$ref": "address.json"},
        },
    }
    address = {"type": "object", "properties": {"city": {"type": "string"}}}
    assert types(connect_of_json_schema(schema, {"address.json": address})) == {
        "id": "int64",
        "at": "timestamp_tz?",
        "name": "string?",
        "size": "float64?",
        "address": "struct<city:string>?",
    }


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "array", "items": {"type": "string"}}, "is no object's"),
        ({"properties": {"a": {"type": ["string", "integer"]}}}, "several types"),
        ({"properties": {"a": {"oneOf": [{"type": "string"}, {"type": "integer"}]}}}, "several types"),
        ({"properties": {"a": {"type": "object"}}}, "no additionalProperties"),
        ({"properties": {"a": {"$ref": "#/nowhere"}}}, "is not known"),
        ({"properties": {"a": {"$ref": "#"}}}, "within itself"),
    ],
)
def test_json_schema_that_is_not_read_exactly_is_refused(schema: Any, reason: str) -> None:
    with pytest.raises(ChangelogUnusable, match=reason):
        connect_of_json_schema(schema, {})


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('"string"', Kind.AVRO),
        ('{"type":"record"}', Kind.AVRO),
        ('{"type":"struct"}', Kind.CONNECT),
        ('{"type":"object"}', Kind.JSON_SCHEMA),
        ('{"$ref":"#/x"}', Kind.JSON_SCHEMA),
    ],
)
def test_kind_is_told_by_the_text(text: str, kind: Kind) -> None:
    assert kind_of(text) is kind
