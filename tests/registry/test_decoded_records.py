"""Random changelogs of all types, encoded by real converters with a real registry, decode to the same records."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from ingest.batches.record_decoding import RecordDecoding
from ingest.changelog.connect_schema import columns_of
from ingest.changelog.envelope import RECORD
from ingest.changelog.registry.decoded import ENCODING_HEADER
from ingest.lakehouse.registered_schemas import RegisteredSchemas
from ingest.sources.registry import SchemaRegistry
from ingest.stack.registry import Registry
from ingest.testing.source_types import MODES
from ingest.testing.table_records import as_debezium
from ingest.testing.tables import random_table
from tests.registry.converters import AVRO, EXT_JSON, Converters, Headers

pytestmark = [pytest.mark.spark, pytest.mark.integration]
PREFIX = {"apicurio.registry.headers.enabled": "false"}
CONFLUENT = PREFIX | {"apicurio.registry.as-confluent": "true", "apicurio.registry.use-id": "contentId"}
WAYS: tuple[tuple[str, Mapping[str, str]], ...] = (
    (AVRO, CONFLUENT),
    (AVRO, PREFIX),
    (AVRO, {}),
    (AVRO, {"apicurio.registry.use-id": "contentId"}),
    (EXT_JSON, PREFIX),
)
"""Converters and their settings: an ID of four bytes, of eight, in headers (two kinds), in JSON."""
SEEDS = 6
Document = dict[str, Any]


def _name(name: str) -> str:
    """Returns a name as field.name.adjustment.mode=avro_unicode writes it."""
    text = re.sub("[^A-Za-z0-9_]", lambda found: f"_u{ord(found[0]):04x}", name)
    return text if re.match("[A-Za-z_]", text) else f"_{text}"


def adjusted(schema: Document, value: Any) -> tuple[Document, Any]:
    """Returns a Connect schema and a value of it with names that Avro allows."""
    kind = schema["type"]
    if kind == "struct":
        fields, values = [], {}
        for one in schema["fields"]:
            inside, changed = adjusted(one, None if value is None else value.get(one["field"]))
            name = _name(one["field"])
            fields.append(inside | {"field": name})
            values[name] = changed
        return schema | {"fields": fields}, None if value is None else values
    if kind == "array":
        items = [adjusted(schema["items"], one) for one in value or ()]
        inside = adjusted(schema["items"], None)[0]
        return schema | {"items": inside}, None if value is None else [one for _, one in items]
    return schema, value


def key_document(key: Mapping[str, Any], row: Document) -> Document:
    """Returns a key with a schema, of the row's types."""
    types = {one["field"]: one for one in row["fields"]}
    fields = [types[name] | {"optional": False} for name in key]
    for one in fields:
        one.pop("default", None)
    return {"schema": {"type": "struct", "name": "key", "fields": fields}, "payload": dict(key)}


def documents(seeds: range) -> list[tuple[str, Document | None, Document | None]]:
    """Returns topic, key and value of the records of random tables, both with their schemas."""
    found = []
    for seed in seeds:
        story = random_table(Random(seed), 12, name=f"public.t{seed}", mode=MODES[seed % len(MODES)])
        for record in as_debezium(story, story.events, trigger=False, topic=f"random.t{seed}"):
            value = record["value"]
            row = None
            if value is not None:
                schema, payload = adjusted(value["schema"], value["payload"])
                source = {"type": "struct", "field": "source", "optional": True, "name": "source", "fields": []}
                source["fields"] = [
                    {"field": name, "type": "int64" if isinstance(one, int) else "string", "optional": True}
                    for name, one in value["payload"]["source"].items()
                ]
                schema["fields"] = [*schema["fields"], source]
                payload["source"] = value["payload"]["source"]
                value, row = {"schema": schema, "payload": payload}, schema["fields"][1]
            key = record["key"]
            if key is not None and "payload" in key:
                key = key["payload"]
            if (
                key is not None
                and row is not None
                and {_name(name) for name in key} <= {f["field"] for f in row["fields"]}
            ):
                key = key_document({_name(name): one for name, one in key.items()}, row)
            else:
                key = None
            found.append((record["topic"], key, value))
    return found


def frame(spark: SparkSession, rows: list[tuple[str, bytes | None, bytes | None, Headers]]) -> DataFrame:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return spark.createDataFrame(
        [
            (topic, 0, number, at, headers or None, key and bytearray(key), value and bytearray(value))
            for number, (topic, key, value, headers) in enumerate(rows)
        ],
        RECORD,
    )


def decoding_of(spark: SparkSession, registry: Registry, folder: Path, url: str = "") -> RecordDecoding:
    kept = RegisteredSchemas(spark, str(folder / "schemas"), "shop")
    return RecordDecoding(kept, SchemaRegistry(url or registry.url))


def test_random_changelogs_decode_to_the_records_of_the_json_converter(
    spark: SparkSession, registry: Registry, tmp_path: Path
) -> None:
    converters = Converters(spark, registry.core_url)
    expected = documents(range(SEEDS))
    rows = []
    for number, (topic, key, value) in enumerate(expected):
        converter, settings = WAYS[number % len(WAYS)]
        named = f"{topic}.{number % len(WAYS)}"
        encoded_key, headers = (
            converters.encode(converter, settings, named, key, is_key=True) if key is not None else (None, [])
        )
        encoded, more = converters.encode(converter, settings, named, value) if value is not None else (None, [])
        rows.append((topic, encoded_key, encoded, [*headers, *more]))
    records = frame(spark, rows)
    decoding = decoding_of(spark, registry, tmp_path)
    found = decoding.of(records).orderBy("offset").collect()
    for (_, key, value), row in zip(expected, found, strict=True):
        _assert_equal(key, value, row)
    # Decoded ones stay as they are, whatever their headers say.
    again = decoding.of(spark.createDataFrame(found, RECORD)).orderBy("offset").collect()
    assert again == found
    # Without the registry, by the schemas that the lakehouse keeps.
    kept = decoding_of(spark, registry, tmp_path, "http://127.0.0.1:9/apis/ccompat/v7")
    assert kept.of(records).orderBy("offset").collect() == found


def _assert_equal(key: Document | None, value: Document | None, row: Row) -> None:
    assert (row["key"] is None) == (key is None)
    if key is not None:
        assert json.loads(bytes(row["key"])) == key["payload"]
    assert (row["value"] is None) == (value is None)
    if value is not None:
        decoded = json.loads(bytes(row["value"]))
        assert decoded["payload"] == value["payload"]
        (after,) = decoded["schema"]["fields"]
        assert columns_of(after) == columns_of(value["schema"]["fields"][1])
    marks = [bytes(one["value"]) for one in row["headers"] or () if one["key"] == ENCODING_HEADER]
    assert marks in ([b"avro"], [b"connect-json"]) or (key, value) == (None, None)
