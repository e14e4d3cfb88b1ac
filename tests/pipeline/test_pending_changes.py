"""What `ingest check --live` says of changes of tables that are not merged yet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from ingest.changelog.connect_schema import columns_of
from ingest.cli.pipeline.live import change_lines
from ingest.config import Pipeline, load
from ingest.evolution.definition import Origin, Version
from ingest.evolution.policies import TableColumn
from ingest.evolution.schema_policy import Outcome
from ingest.evolution.seen_definitions import seen_definition
from ingest.lakehouse.schema_json import column_to_json, versions_to_json
from ingest.pipeline.pending_changes import known_tables, pending_changes, unfollowed_tables
from ingest.sources.newest_events import RecordShape, shape_of
from ingest.values.columns import Column
from tests.evolution.versions import at

ORDERS = "public.orders"
TOPIC = "shop.public.orders"


def columns(**types: str) -> tuple[Column, ...]:
    fields = [{"field": name, "type": type_, "optional": True} for name, type_ in types.items()]
    return columns_of({"type": "struct", "fields": fields})


def shape(key: tuple[str, ...] = ("id",), **types: str) -> RecordShape:
    found = columns(**types)
    return RecordShape(TOPIC, ORDERS, tuple(types), key, {c.name: str(c.type) for c in found}, found)


def shop(tmp_path: Path, **more: Any) -> Pipeline:
    source = {"kafka": {"bootstrap.servers": "b:1"}, "topics": [TOPIC]}
    path = tmp_path / "shop.yaml"
    path.write_text(json.dumps({"source": source, "lakehouse": str(tmp_path / "lakehouse")} | more))
    return load(path, {})


def catalog(path: str, *versions: tuple[Column, ...], known: tuple[Column, ...]) -> None:
    rows = []
    for revision, one in enumerate(versions, 1):
        shown = Version(at(10 * revision), seen_definition(one, {c.name: c.name for c in one}), Origin.SEEN)
        table_columns = [column_to_json(TableColumn(c.name, c.type)) for c in known]
        rows.append(
            {
                "pipeline": "shop",
                "table": ORDERS,
                "revision": revision,
                "primary_key": ["id"],
                "columns": json.dumps(table_columns),
                "versions": versions_to_json([shown]),
            }
        )
    write_deltalake(path, pa.Table.from_pylist(rows))


def found(pipeline: Pipeline, seen: RecordShape) -> list[tuple[str, Outcome, tuple[str, ...]]]:
    known = known_tables(pipeline.layout.tables, pipeline.name)
    return [(one.change, one.outcome, one.depends) for one in pending_changes(pipeline, [seen], known)]


FIRST = columns(id="int32", name="string", total="int32")


def test_changes_are_said_with_their_outcome_and_what_depends_on_them(tmp_path: Path) -> None:
    tables = {
        ORDERS: {
            "columns": {"id": "int32", "name": "string", "total": "int32"},
            "personal": ["name"],
            "subject": {"of": "customer", "key": "id"},
            "schema": {"on_change": "lenient"},
        }
    }
    privacy = {"key_file": str(tmp_path / "keys")}
    pipeline = shop(tmp_path, tables=tables, privacy=privacy)
    catalog(pipeline.layout.tables, FIRST, known=FIRST)
    personal = "subject, personal, shred or on_erasure"
    assert found(pipeline, shape(id="int32", total="string", code="string")) == [
        ("drop.column name", Outcome.KEPT, ("columns", personal)),
        ("alter.column.type total from int32 to string", Outcome.APPLIED, ("columns",)),
        ("add.column code", Outcome.APPLIED, ()),
    ]
    assert found(pipeline, shape(id="int32", name="string", total="int32")) == []


def test_a_column_that_was_dropped_before_is_no_change(tmp_path: Path) -> None:
    pipeline = shop(tmp_path)
    catalog(pipeline.layout.tables, FIRST, columns(id="int32", total="int32"), known=FIRST)
    assert found(pipeline, shape(id="int32", total="int32")) == []


def test_a_changed_key_and_refusals_are_said(tmp_path: Path) -> None:
    pipeline = shop(tmp_path, schema={"on_change": "fail"})
    catalog(pipeline.layout.tables, FIRST, known=FIRST)
    changes = found(pipeline, shape(("id", "name"), id="int32", name="string"))
    assert changes == [
        ("drop.column total", Outcome.REFUSED, ()),
        ("alter.key from (id) to (id, name)", Outcome.REFUSED, ()),
    ]


def test_declared_renames_are_said(tmp_path: Path) -> None:
    renamed = shape(id="int32", title="string", total="int32")
    tables = {ORDERS: {"renames": {"name": "title"}}}
    pipeline = shop(tmp_path, tables=tables, schema={"on_change": "fail"})
    catalog(pipeline.layout.tables, FIRST, known=FIRST)
    assert found(pipeline, renamed) == [("rename.column name to title", Outcome.APPLIED, ())]
    beside = shop(tmp_path, tables=tables, schema={"on_change": "lenient"})
    assert found(beside, renamed) == [("drop.column name", Outcome.KEPT, ()), ("add.column title", Outcome.APPLIED, ())]
    of_key = shop(tmp_path, tables={ORDERS: {"renames": {"id": "no"}}})
    assert found(of_key, shape(("no",), no="int32", name="string", total="int32")) == [
        ("rename.column id to no", Outcome.REFUSED, ("the table's key",))
    ]


def test_tables_whose_declared_renames_keep_messages_from_taking_effect_are_said(tmp_path: Path) -> None:
    renames = {"renames": {"name": "title"}}
    (said,) = unfollowed_tables(shop(tmp_path, tables={ORDERS: renames, "public.plain": {}})).values()
    assert "public.orders goes by its events" in said
    assert "--rebuild --table public.orders" in said
    assert unfollowed_tables(shop(tmp_path, tables={ORDERS: renames}, schema={"on_change": "lenient"})) == {}


def test_events_without_a_schema_show_new_columns_only(tmp_path: Path) -> None:
    pipeline = shop(tmp_path, schema={"on_change": "ignore"})
    catalog(pipeline.layout.tables, FIRST, known=FIRST)
    record = {"op": "u", "after": {"id": 1, "code": 2}, "source": {"schema": "public", "table": "orders"}}
    seen = shape_of(TOPIC, b'{"id": 1}', json.dumps(record).encode())
    assert isinstance(seen, RecordShape)
    assert found(pipeline, seen) == [("add.column code", Outcome.IGNORED, ())]


def test_tables_that_are_not_created_are_named_and_new_ones_are_no_change(tmp_path: Path) -> None:
    assert found(shop(tmp_path), shape(id="int32")) == []
    without = shop(tmp_path, schema={"exclude": ["create.table"]})
    assert found(without, shape(id="int32")) == [("create.table", Outcome.IGNORED, ())]


def test_each_change_is_a_sentence() -> None:
    change = {"table": ORDERS, "change": "drop.column name", "outcome": Outcome.KEPT, "depends": ("columns",)}
    assert change_lines({"changes": [change]}) == [
        "Table public.orders: drop.column name will be kept beside; it is named by: columns."
    ]
    assert change_lines({"changes": None}) == []
