"""The content of a message of the source's triggers is read as the version of a table that it tells."""

from __future__ import annotations

import json
from decimal import Decimal
from random import Random
from typing import Any

import pytest

from ingest.changelog.connect_schema import columns_of
from ingest.errors import ChangelogUnusable
from ingest.evolution.ddl_version import ddl_version
from ingest.evolution.definition import NULL, UNKNOWN, ColumnDefinition, FillKind, Origin
from ingest.evolution.postgres_types import told_column, with_default
from ingest.testing.ddl_messages import message_content
from ingest.testing.source_table import SourceColumn
from ingest.testing.source_types import source_types
from ingest.testing.table_records import connect_field
from ingest.testing.table_versions import place_of, told_versions
from ingest.testing.tables import random_table

AT = (0, 100, 0, 0, -1, 7, 0)


def content(**changes: Any) -> str:
    column = {
        "n": 2, "name": "c", "type": "integer", "base": "integer", "kind": "b", "notnull": False, "default": None,
        "missing": None, "generated": "", "identity": "", "sent": True, "labels": [],
    }  # fmt: skip
    found = {
        "v": 1, "tag": "ALTER TABLE", "oid": 5, "schema": "public", "table": "t", "root": None,
        "columns": [column | changes.pop("column", {})],
        "key": {"from": "primary", "columns": [2], "replica_identity": "d"},
        "rewrite": {"type": False, "default": False}, "using": False, "computed": [], "zone": "UTC",
    }  # fmt: skip
    return json.dumps(found | changes)


def column(**changes: Any) -> ColumnDefinition:
    tag, rewrite = changes.pop("tag", "ALTER TABLE"), changes.pop("rewrite", {"type": False, "default": False})
    _, version = ddl_version(content(column=changes, tag=tag, rewrite=rewrite), AT)
    return version.definition.columns[0]


def test_messages_of_random_tables_tell_their_versions() -> None:
    compared = 0
    for seed in range(150):
        story = random_table(Random(seed))
        told = iter(told_versions(story))
        for event in story.events:
            if event.ddl is None or event.carried is None:
                continue
            expected = next(told)
            table, version = ddl_version(message_content(story, event), place_of(event))
            assert (table, version.since, version.origin) == (story.name, expected.since, Origin.TOLD)
            assert (version.definition.key or (), version.definition.relation) == (
                expected.definition.key or (),
                expected.definition.relation,
            )
            assert version.cause == expected.cause
            for found, wanted in zip(version.definition.columns, expected.definition.columns, strict=True):
                assert (found.name, found.number, found.optional, found.source_type) == (
                    wanted.name, wanted.number, wanted.optional, wanted.source_type,
                )  # fmt: skip
                if found.type is not None and story.mode == "adaptive":
                    assert found.type == wanted.type
                compared += 1
    assert compared > 1000


def test_types_that_are_listed_are_those_of_events() -> None:
    known = 0
    for name, type_ in source_types("adaptive").items():
        base = name.split("(")[0] + name[name.index(")") + 1 :] if "(" in name else name
        found = told_column("c", name, base, is_enum=name == "mood")
        if found is not None:
            field = connect_field("c", SourceColumn(name), type_)
            assert found.type == columns_of({"type": "struct", "fields": [field]})[0].type, name
            known += 1
    assert known > 20


@pytest.mark.parametrize(
    ("type_", "value", "default"),
    [
        ("integer", 7, "7"),
        ("bigint", 9007199254740993, "9007199254740993"),
        ("double precision", Decimal("0.1"), "0.1"),
        ("double precision", "NaN", '"NaN"'),
        ("numeric(12,2)", Decimal("7.50"), '"7.50"'),
        ("numeric", Decimal("1E+30"), '"1000000000000000000000000000000"'),
        ("boolean", True, "true"),
        ("text", "a\nü", '"a\\nü"'),
        ("bytea", "\\x00ff", '"AP8="'),
        ("date", "2026-01-01", '"2026-01-01"'),
        ("timestamp without time zone", "2026-01-01T00:00:00.5", '"2026-01-01T00:00:00.5"'),
        ("timestamp with time zone", "infinity", '"infinity"'),
        ("integer[]", [1, None], "[1,null]"),
    ],
)
def test_value_of_older_rows_is_a_constant(type_: str, value: Any, default: str) -> None:
    base = type_.split("(")[0]
    known = told_column("c", type_, base)
    assert known is not None
    found = with_default(known, value)
    assert found is not None
    assert (found.default, found.has_default) == (default, True)


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("numeric(12,2)", "NaN"), ("date", "0044-03-15 BC"), ("date", "infinity"), ("interval", "P1M"),
        ("time with time zone", "12:00:00+02"), ("integer[]", [[1], [2]]), ("jsonb", {"a": 1}),
    ],
)  # fmt: skip
def test_value_in_a_form_that_is_not_known_is_unknown(type_: str, value: Any) -> None:
    found = column(type=type_, base=type_.split("(")[0], missing=[value])
    assert found.fill == UNKNOWN


def test_fill_without_a_value_in_the_catalog() -> None:
    type_rewrite = {"type": True, "default": False}
    assert column(missing=[7]).fill.kind is FillKind.CONSTANT
    assert column().fill == NULL
    assert column(default="7").fill == NULL, "SET DEFAULT of a column without a value for older rows"
    assert column(default="7", rewrite=type_rewrite).fill == UNKNOWN
    assert column(identity="a", rewrite={"type": False, "default": True}).fill == UNKNOWN
    assert column(rewrite=type_rewrite).fill == NULL
    assert column(tag="ALTER PUBLICATION").fill == UNKNOWN
    assert column(default="7", tag="BASELINE").fill == UNKNOWN
    assert column(type="public.citext", base="public.citext", missing=["a"]).fill == UNKNOWN


def test_columns_that_are_not_sent_are_no_columns() -> None:
    _, version = ddl_version(content(column={"sent": False, "generated": "s"}), AT)
    assert version.definition.columns == ()


def test_domain_has_the_type_below_it_unless_that_has_modifiers() -> None:
    percent = column(type="public.percent", base="integer", kind="d")
    amount = column(type="public.amount", base="numeric", kind="d")
    feeling = column(type="public.feeling", base="public.mood", kind="d", labels=[[1, "on"]])
    assert [str(c.type) for c in (percent, amount, feeling)] == ["int32", "None", "enum"]
    assert percent.source_type == "public.percent"


def test_cause_names_the_columns_that_an_expression_computes() -> None:
    _, version = ddl_version(content(using=True, computed=[2], rewrite={"type": True, "default": False}), AT)
    assert (version.cause.using, version.cause.numbers, version.cause.rewritten) == (True, (2,), True)
    _, unclear = ddl_version(content(using=None), AT)
    assert unclear.cause.using is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "unknown form"),
        ("[1]", "unknown form"),
        (content(key={}), "unknown form"),
        (content(v=2), "version 2, not 1"),
        ('{"v":1,"tag":"ALTER TABLE","schema":"a","table":"t","oid":5,"error":"42883"}', "a.t after ALTER TABLE"),
        ('{"v":1,"tag":"ALTER TYPE","schema":null,"table":null,"error":"42883"}', "a table after ALTER TYPE"),
    ],
)  # fmt: skip
def test_message_that_tells_no_definition_is_refused_with_a_remedy(text: str, words: str) -> None:
    with pytest.raises(ChangelogUnusable, match=words) as refused:
        ddl_version(text, AT)
    assert refused.value.remedy
