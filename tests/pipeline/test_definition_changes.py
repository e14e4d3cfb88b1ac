"""Messages about a table become changes in words, with a remedy where only the source knows a value."""

from __future__ import annotations

import json
from typing import Any

from ingest.errors import ChangelogUnusable
from ingest.evolution.ddl_version import ddl_version
from ingest.evolution.definition import ColumnDefinition, Definition, Origin, Version
from ingest.lakehouse.schema_history import ToldVersion
from ingest.pipeline.definition_changes import definition_changes, with_renames
from ingest.values.types import Kind, LogicalType


def column(number: int, name: str, type_: str = "integer", **changes: Any) -> dict[str, Any]:
    return {
        "n": number, "name": name, "type": type_, "base": type_.split("(")[0], "kind": "b", "notnull": False,
        "default": None, "missing": None, "generated": "", "identity": "", "sent": True, "labels": [],
    } | changes  # fmt: skip


def message(at: int, *columns: dict[str, Any], key: tuple[int, ...] = (1,), **changes: Any) -> ToldVersion:
    content = {
        "v": 1, "tag": "ALTER TABLE", "oid": 5, "schema": "public", "table": "t", "root": None, "columns": columns,
        "key": {"from": "primary" if key else "full", "columns": key, "replica_identity": "d"},
        "rewrite": {"type": False, "default": False}, "using": False, "computed": [], "zone": "UTC",
    } | changes  # fmt: skip
    since = (0, at, 0, 0, -1, at, 0)
    try:
        return ToldVersion(since, None, ddl_version(json.dumps(content), since)[1])
    except ChangelogUnusable as fault:
        return ToldVersion(since, None, fault=fault)


ID = column(1, "id", notnull=True)
REWRITTEN = {"type": True, "default": False}


def test_changes_are_told_in_the_order_of_positions() -> None:
    messages = [
        message(10, ID, column(2, "a")),
        message(20, ID, column(2, "b"), column(3, "c", missing=[7], default="7")),
        message(30, ID, column(2, "b", "numeric(12,2)"), column(3, "c", default="8"), rewrite=REWRITTEN),
        message(
            40, ID, column(2, "b", "text"), column(3, "c", default="8"), using=True, computed=[2], rewrite=REWRITTEN
        ),
        message(50, ID, column(3, "c", notnull=True), key=(1, 3)),
        message(60, tag="DROP TABLE", key=()),
        message(70, ID, tag="CREATE TABLE", oid=6),
    ]
    found = definition_changes(messages[::-1])
    assert [(change.position[1], change.kind, change.text) for change in found] == [
        (10, "first", "columns id integer, a integer; key (id)"),
        (20, "rename.column", "column a renamed to b"),
        (20, "add.column", "column c added; rows from before read 7"),
        (30, "alter.column.type", "column b was integer, is numeric(12,2)"),
        (30, "alter.default", "column c has the default 8 for new rows"),
        (40, "alter.column.type", "column b was numeric(12,2), is text, computed by an expression: values from before "
         "are known to the source only"),
        (50, "drop.column", "column b dropped"),
        (50, "alter.nullability", "column c is NOT NULL"),
        (50, "alter.default", "column c has no default for new rows"),
        (50, "alter.key", "key was (id), is (id, c)"),
        (60, "drop.table", "table dropped; its rows stay until another table has the name"),
        (70, "create.table", "table created"),
    ]  # fmt: skip
    assert [change.position[1] for change in found if change.remedy is not None] == [40]


def test_value_that_only_the_source_knows_and_a_failure_have_a_remedy() -> None:
    messages = [
        message(10, ID),
        message(20, ID, column(2, "a", default="random()"), rewrite={"type": False, "default": True}),
        message(30, error="42883"),
    ]
    added, fault = definition_changes(messages)[1:]
    assert (added.text, added.remedy) == (
        "column a added; rows from before read what only the source knows",
        "read them again: ingest resync PIPELINE TABLE",
    )
    assert fault.kind == "fault"
    assert "send_definitions" in (fault.remedy or "")


def test_what_events_show_is_told_with_its_origin() -> None:
    def seen(at: int, *names: str) -> Version:
        columns = tuple(ColumnDefinition(name, LogicalType(Kind.INT32)) for name in names)
        return Version((0, at, 0, 0, 1, at, 0), Definition(columns, ("id",)), Origin.SEEN)

    versions = {seen(5, "id"), seen(15, "id", "a"), seen(25, "id", "a", "b")}
    without = definition_changes([], versions)
    assert [(change.text, change.origin) for change in without[1:]] == [
        ("column a added; rows from before read null, it is assumed", Origin.SEEN.value),
        ("column b added; rows from before read null, it is assumed", Origin.SEEN.value),
    ]
    (first, *told) = definition_changes([message(10, ID), message(20, ID, column(2, "a", missing=[7]))], versions)
    assert first.origin == Origin.SEEN.value
    assert [(change.text, change.origin) for change in told if change.kind == "add.column"] == [
        ("column a added; rows from before read 7", Origin.TOLD.value),
        # No message names it, so the connector adds it.
        ("column b added; rows from before read null, it is assumed", Origin.SEEN.value),
    ]


def test_a_rename_is_told_under_both_names_with_what_is_missing() -> None:
    told = {
        "public.t": [message(10, ID)],
        "public.u": [message(20, ID, table="u")],
        "public.x": [message(5, error="1")],
    }
    both = with_renames(told)
    (left,) = definition_changes(both["public.t"])[1:]
    assert left.text == "table renamed to public.u; its rows stay until another table has the name"
    assert left.remedy is None
    first, came = definition_changes(both["public.u"])
    assert (first.kind, came.kind, came.position[1]) == ("first", "rename.table", 20)
    assert came.text == "table renamed from public.t, under which its rows from before stay"
    assert came.remedy == "read its rows from before: ingest resync PIPELINE TABLE"
    assert [one.kind for one in definition_changes(both["public.x"])] == ["fault"]
