"""The newest events of a topic contradict a pipeline file in sentences that name the column."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ingest.changelog.registry.frames import SchemaId
from ingest.changelog.registry.registered_schema import Kind, RegisteredSchema
from ingest.config import Pipeline, load
from ingest.sources.declarations import mismatches, unseen_columns
from ingest.sources.newest_events import RecordShape, RegistryLookup, UnreadableTopic, shape_of
from ingest.sources.registry import SchemaRegistry

TOPIC = "shop.public.orders"
SOURCE = {"schema": "public", "table": "orders"}
ROW = {"id": 1, "total": "AQ=="}
AFTER = {
    "type": "struct",
    "field": "after",
    "fields": [
        {"field": "id", "type": "int32"},
        {"field": "total", "type": "bytes", "name": "org.apache.kafka.connect.data.Decimal",
         "parameters": {"scale": "2", "connect.decimal.precision": "10"}},
    ],
}  # fmt: skip


def text(document: Any) -> bytes:
    return json.dumps(document).encode()


def test_record_with_a_schema_gives_columns_types_and_key() -> None:
    value = {"schema": {"type": "struct", "fields": [AFTER]}, "payload": {"op": "c", "after": ROW, "source": SOURCE}}
    key = {"schema": {}, "payload": {"id": 1}}
    types = {"id": "int32", "total": "decimal(10,2)"}
    assert shape_of(TOPIC, text(key), text(value)) == RecordShape(
        TOPIC, "public.orders", ("id", "total"), ("id",), types
    )


def test_other_forms_give_what_debezium_gives() -> None:
    attributes = {"specversion": "1.0", "iodebeziumop": "c", "iodebeziumschema": "public", "iodebeziumtable": "orders"}
    images = {"before": None, "after": ROW}
    data = {"schema": {"type": "struct", "fields": [AFTER]}, "payload": images}
    row_schema = AFTER | {"fields": [*AFTER["fields"], {"field": "__op", "type": "string"}]}
    types = {"id": "int32", "total": "decimal(10,2)"}
    expected = RecordShape(TOPIC, "public.orders", ("id", "total"), ())
    for value in (attributes | {"data": images}, ROW | {"__op": "c", "__table": "orders", "__schema": "public"}):
        assert shape_of(TOPIC, b"", text(value)) == expected
    assert shape_of(TOPIC, b"", text(ROW), "public.orders") == expected
    assert shape_of(TOPIC, b"", text(attributes | {"data": data})) == replace(expected, types=types)
    wrapped = {"schema": row_schema, "payload": ROW | {"__op": "c"}}
    assert shape_of(TOPIC, b"", text(wrapped), "public.orders") == replace(expected, types=types)


def test_record_without_a_schema_gives_names() -> None:
    value = {"op": "d", "before": ROW, "after": None, "source": SOURCE}
    assert shape_of(TOPIC, b"", text(value)) == RecordShape(TOPIC, "public.orders", ("id", "total"), ())
    assert shape_of("routed", b"", text({"op": "c", "after": ROW}), "public.mine") == RecordShape(
        "routed", "public.mine", ("id", "total"), ()
    )


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"\0\0\0\0\x07abc", "registry"),
        (b"<xml/>", "no JSON"),
        (b"[1]", "no JSON"),
        (text({"specversion": "1.0", "data": {}}), "CloudEvents"),
        (text(ROW), "without an envelope"),
    ],
)
def test_records_that_are_no_change_events_are_reported(value: bytes, reason: str) -> None:
    found = shape_of(TOPIC, b"", value)
    assert isinstance(found, UnreadableTopic)
    assert reason in found.reason


@pytest.mark.parametrize(
    "value",
    [{"ts_ms": 1}, {"status": "BEGIN", "id": "7", "ts_ms": 1}, {"op": "t", "source": SOURCE, "after": None}],
)
def test_record_without_a_row_is_skipped(value: dict[str, Any]) -> None:
    assert shape_of(TOPIC, b"", text(value)) is None


def pipeline(tmp_path: Path, tables: str, source: str = "") -> Pipeline:
    path = tmp_path / "shop.yaml"
    path.write_text(
        f"source: {{kafka: {{bootstrap.servers: 'b:1'}}, topic_pattern: '.*'{source}}}\nlakehouse: /data\n"
        f"tables: {tables}\n"
    )
    return load(path, {})


SHAPE = RecordShape(TOPIC, "public.orders", ("id", "Total"), ("id",))


@pytest.mark.parametrize(
    ("tables", "sentence"),
    [
        ("{public.orders: {primary_key: [idd]}}", "primary_key: its newest events have no column 'idd': did you mean"),
        ("{public.orders: {primary_key: [area]}}", "no column 'area': there are id, Total"),
        (
            "{public.orders: {columns: {totl: string}}}",
            "columns: its newest events have no column 'totl': did you mean",
        ),
        ("{public.orders: {sequence: at}}", "sequence: its newest events have no column 'at'"),
        ("{public.orders: {personal: [Totl]}}", "have no column 'Totl': did you mean 'Total'?"),
        ("{public.orders: {rename: {idd: number}}}", "rename: its newest events have no column 'idd'"),
        ("{public.ordres: {primary_key: [id]}}", "is of 'public.ordres': did you mean 'public.orders'?"),
    ],
)
def test_contradicted_declaration_is_reported(tmp_path: Path, tables: str, sentence: str) -> None:
    (found,) = mismatches(pipeline(tmp_path, tables), [SHAPE])
    assert sentence in found


def test_matching_declaration_is_not_reported(tmp_path: Path) -> None:
    folded = pipeline(tmp_path, "{public.orders: {primary_key: [ID], columns: {total: string}}}",
                      ", case_insensitive: true")  # fmt: skip
    assert mismatches(folded, [SHAPE]) == []
    assert mismatches(pipeline(tmp_path, "{public.empty: {primary_key: [id]}}"), [SHAPE]) == []
    any_case = pipeline(tmp_path, "{public.orders: {primary_key: [ID], columns: {total: string}}}")
    assert mismatches(any_case, [SHAPE]) == unseen_columns(any_case, [SHAPE]) == []
    renamed = pipeline(tmp_path, "{public.orders: {rename: {id: number}, primary_key: [number]}}")
    assert mismatches(renamed, [SHAPE]) == unseen_columns(renamed, [SHAPE]) == []


@pytest.mark.parametrize("tables", ["{public.orders: {personal: [email]}}",
                                    "{public.orders: {columns: {totals: string, Total: string}}}"])  # fmt: skip
def test_possibly_dropped_column_is_only_noted(tmp_path: Path, tables: str) -> None:
    read = pipeline(tmp_path, tables)
    assert mismatches(read, [SHAPE]) == []
    (note,) = unseen_columns(read, [SHAPE])
    assert "its newest events have no column" in note


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        ("schema.table", "public.orders"),
        ("database.schema.table", "eu.public.orders"),
        ("server.schema.table", "shop.public.orders"),
        ("server.database.schema.table", "shop.eu.public.orders"),
    ],
)
def test_table_is_named_by_the_file(tmp_path: Path, parts: str, name: str) -> None:
    value = text({"op": "c", "after": ROW, "source": SOURCE | {"name": "shop", "db": "eu"}})
    found = shape_of(TOPIC, b"", value, table_names=parts)
    assert isinstance(found, RecordShape)
    assert found.table == name
    read = pipeline(tmp_path, f"{{{name}: {{primary_key: [id]}}}}", f", table_names: {parts}")
    assert mismatches(read, [found]) == []


def test_mysql_has_no_schema_but_its_database() -> None:
    value = text({"op": "c", "after": ROW, "source": {"name": "shop", "db": "eu", "table": "orders"}})
    found = shape_of(TOPIC, b"", value, table_names="server.database.schema.table")
    assert isinstance(found, RecordShape)
    assert found.table == "shop.eu.orders"


def test_unreadable_topic_is_named(tmp_path: Path) -> None:
    (found,) = mismatches(pipeline(tmp_path, "{}"), [UnreadableTopic("t", "CloudEvents")])
    assert found == "topic t: its records are CloudEvents"


def test_schema_of_a_registry_gives_columns_types_and_key() -> None:
    value = {
        "type": "struct",
        "name": "srv.public.orders.Envelope",
        "fields": [AFTER, {"field": "op", "type": "string"}],
    }
    key = {"type": "struct", "fields": [{"field": "id", "type": "int32"}]}

    class Registry(SchemaRegistry):
        def schema(self, schema_id: SchemaId) -> RegisteredSchema | None:
            texts = {"1": json.dumps(key), "2": json.dumps(value)}
            found = texts.get(schema_id.value)
            return None if found is None else RegisteredSchema(Kind.CONNECT, found)

    lookup = RegistryLookup(Registry("http://registry"))
    first = lookup.described("key", b"\0\0\0\0\1...", [])
    second = lookup.described("value", b"...", [("__value_schema_id", b"\0\0\0\0\2")])
    types = {"id": "int32", "total": "decimal(10,2)"}
    assert shape_of(TOPIC, first, second) == RecordShape(TOPIC, "public.orders", ("id", "total"), ("id",), types)
    assert lookup.described("value", b"\0\0\0\0\3", []) == b"\0\0\0\0\3"
