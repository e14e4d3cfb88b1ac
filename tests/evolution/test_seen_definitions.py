"""What schemas of events show: definitions, in the catalog's JSON, and the stored values that they change."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ingest.changelog.connect_schema import columns_of
from ingest.evolution.definition import NULL, UNKNOWN, ColumnDefinition, Fill, FillKind, Origin, Version
from ingest.evolution.lives import lives
from ingest.evolution.policies import TableColumn
from ingest.evolution.revisions import Source, altered_columns
from ingest.evolution.seen_definitions import (
    CatalogColumn,
    assumed_columns,
    read_versions,
    seen_definition,
    stored_version,
)
from ingest.lakehouse.schema_json import versions_from_json, versions_to_json
from ingest.testing.table_versions import seen_versions
from ingest.testing.tables import random_table
from ingest.values.columns import Column
from tests.evolution.versions import INT, LONG, TEXT, WIRE, at, column, constant, seen, told

FILLED = column("t", default="11")
FIELDS = [
    {"field": "id", "type": "int32", "optional": False},
    {"field": "Tier", "type": "int32", "optional": True, "default": 11},
    {"field": "n", "type": "int32", "optional": True, "default": None},
    {"field": "m", "type": "int32", "optional": True},
]


def test_default_of_a_nullable_column_is_its_fill() -> None:
    columns = columns_of({"type": "struct", "fields": FIELDS})
    names = {c.name: c.name.lower() for c in columns}
    number, tier, null, none = seen_definition(columns, names).columns
    assert (number.name, number.optional, number.fill) == ("id", False, UNKNOWN)
    assert (tier.name, tier.optional, tier.fill.kind) == ("tier", True, FillKind.CONSTANT)
    assert tier.fill.column is not None and tier.fill.column.default == "11"
    assert (null.fill, none.fill) == (NULL, NULL)


def filled(field: dict[str, Any]) -> Fill:
    """Returns what rows from before read in a column, by the field of its schema."""
    (column,) = columns_of({"type": "struct", "fields": [{"field": "s", "optional": True, **field}]})
    return seen_definition([column], {"s": "s"}).columns[0].fill


TIME = "io.debezium.time."
VARIABLE = {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal", "fields": []}
DECIMAL = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal"}


@pytest.mark.parametrize(
    "field",
    [
        {"type": "int32", "optional": False},
        {"type": "array", "items": {"type": "int32"}},
        VARIABLE,
        {**DECIMAL, "parameters": {"scale": "2"}},
        {"type": "bytes"},
        {"type": "string", "name": f"{TIME}ZonedTime"},
        {"type": "int32", "name": f"{TIME}Date", "default": 0},
        {"type": "int64", "name": f"{TIME}MicroTimestamp", "default": 0},
        {"type": "string", "name": f"{TIME}ZonedTimestamp", "default": "1970-01-01T00:00:00.000000Z"},
        {"type": "string", "name": "io.debezium.data.Uuid", "default": "00000000-0000-0000-0000-000000000000"},
    ],
    ids=["not null", "array", "numeric", "money", "bytes", "timetz", "date", "timestamp", "timestamptz", "uuid"],
)
def test_default_that_no_schema_shows_is_unknown(field: dict[str, Any]) -> None:
    """Debezium sends no default of these types, and the epoch or zeros in place of a function's value."""
    assert filled(field) == UNKNOWN


@pytest.mark.parametrize(
    "field",
    [
        {"type": "int32"},
        {"type": "string"},
        {**DECIMAL, "parameters": {"scale": "2", "connect.decimal.precision": "10"}},
        {"type": "int32", "name": f"{TIME}Date"},
        {"type": "string", "name": "io.debezium.data.Enum"},
    ],
    ids=["int", "text", "numeric(10,2)", "date", "enum"],
)
def test_nullable_column_of_a_type_whose_defaults_are_shown_reads_null_in_rows_from_before(
    field: dict[str, Any],
) -> None:
    assert filled(field) == NULL
    assert filled({**field, "default": None}) == NULL


def test_catalog_of_the_source_tells_what_rows_from_before_read() -> None:
    """Of `u` it tells nothing, `v` was there before `id`, and `w` has another type by now."""
    known = [seen(10, "id"), seen(20, "id", "t", "u", "v", "w")]
    assumed = assumed_columns(known[:1], known[1:])
    assert {life.column for life in assumed} == {*"tuvw"}
    text = Fill(FillKind.CONSTANT, Column("w", WIRE, TEXT, default='"7"', has_default=True))
    fills = {"id": NULL, "t": constant("7"), "u": None, "v": NULL, "w": text}
    numbers = {"id": 2, "t": 3, "u": 4, "v": 1, "w": 5}
    catalog = {name: CatalogColumn(numbers[name], fill) for name, fill in fills.items()}
    read = read_versions(known, assumed, catalog)
    now = lives([*known, *read]).shown
    assert [now[name].fill for name in "tuvw"] == [constant("7"), NULL, UNKNOWN, UNKNOWN]
    assert {name: life.origin for name, life in now.items() if life.origin is Origin.SEEN}.keys() == {"id", "u"}
    assert lives(versions_from_json([versions_to_json([*known, *read])])) == lives([*known, *read])
    assert assumed_columns([*known, *read], [seen(30, "id", "t", "u", "v", "w")]) == ()


def test_what_schemas_alone_show_is_assumed() -> None:
    """`d` got a default, `b` came as `a` went, `v` has another type; `n` was added without a default."""
    before = seen(10, "id", "a", column("v", type_=LONG))
    after = seen(20, "id", column("d", default="7"), "b", column("v", type_=INT))
    found = lives([before, after, seen(30, "id", column("d", default="7"), "b", column("v", type_=INT), "n")])
    assert found.assumed_below == {"d": at(20), "b": at(20), "v": at(20)}
    told_first = told(5, column("id", 1), column("v", 2, type_=LONG))
    now = told(25, column("id", 1), column("v", 2, type_=INT), column("d", 3, default="7"))
    assert lives([told_first, now, seen(30, "id", "v", "d")]).assumed_below == {}


def test_unknown_value_rewrites_no_row() -> None:
    unknown = ColumnDefinition("t", INT, fill=UNKNOWN)
    one, two = lives([seen(10, "id")]), lives([seen(10, "id"), seen(20, "id", unknown)])
    assert two.unknown_below == {"t": at(20)}
    assert altered_columns(one, two) == ()
    assert altered_columns(lives([seen(10, "id"), seen(20, "id", "t")]), two) == ()


@pytest.mark.parametrize("seed", range(20))
def test_versions_of_random_tables_are_read_as_they_were_written(seed: int) -> None:
    versions = frozenset(
        Version(v.since, seen_definition([_column(c) for c in v.definition.columns], _names(v)), Origin.SEEN)
        for v in seen_versions(random_table(Random(seed)))
    )
    some, others = [frozenset(part) for part in (list(versions)[::2], list(versions)[1::2])]
    texts = [versions_to_json(some), versions_to_json(others), None]
    assert versions_from_json(texts) == versions
    assert lives(versions_from_json(texts)) == lives(versions)


def _column(defined: ColumnDefinition) -> Column:
    if defined.fill.column is not None:
        return defined.fill.column
    assert defined.type is not None
    return Column(defined.name, WIRE, defined.type, defined.optional)


def _names(version: Version) -> dict[str, str]:
    return {c.name: c.name for c in version.definition.columns}


def test_new_column_with_a_default_alters_rows_from_before() -> None:
    before = lives([seen(10, "id")])
    (revision,) = altered_columns(before, lives([seen(10, "id"), seen(20, "id", FILLED)]))
    assert (revision.column, revision.stored) == ("t", None)
    constant, kept = revision.pieces
    assert (constant.end, constant.source, constant.fill) == (at(20), Source.CONSTANT, FILLED.fill)
    assert (kept.begin, kept.source) == (at(20), Source.STORED)


@pytest.mark.parametrize(
    "after",
    [
        [seen(10, "id"), seen(20, "id", "t")],
        [seen(10, "id", FILLED), seen(20, "id")],
        [seen(10, "id"), seen(20, "id", FILLED), seen(30, "id")],
    ],
    ids=["null", "dropped", "filled before"],
)
def test_nothing_is_altered(after: list[Version]) -> None:
    assert altered_columns(lives(after[:-1]), lives(after)) == ()


def test_values_from_before_a_drop_become_those_of_the_new_column() -> None:
    versions = [seen(10, "id", "n"), seen(20, "id"), seen(30, "id", "n")]
    (revision,) = altered_columns(lives(versions[:2]), lives(versions))
    assert (revision.stored, [piece.source for piece in revision.pieces]) == ("n", [Source.CONSTANT, Source.STORED])


def test_value_and_fill_below_a_late_drop_become_the_fill() -> None:
    known = [seen(10, "id"), seen(20, "id", FILLED), seen(40, "id", FILLED)]
    (revision,) = altered_columns(lives(known), lives([*known, seen(30, "id")]))
    assert [(p.source, p.begin, p.end) for p in revision.pieces] == [
        (Source.STORED, None, at(20)),
        (Source.CONSTANT, at(20), at(40)),
        (Source.STORED, at(40), None),
    ]


def test_default_of_a_lower_event_replaces_the_fill() -> None:
    known = [seen(10, "id"), seen(30, "id", FILLED)]
    after = lives([*known, seen(20, "id", column("t", default="7"))])
    (revision,) = altered_columns(lives(known), after)
    assert [(p.source, p.end) for p in revision.pieces] == [(Source.CONSTANT, at(20)), (Source.STORED, None)]


def test_columns_of_a_table_without_versions_were_always_there() -> None:
    stored = stored_version([TableColumn("id", INT), TableColumn("t", INT)])
    assert altered_columns(lives([stored]), lives([stored, seen(20, "id", FILLED)])) == ()
    (revision,) = altered_columns(lives([stored]), lives([stored, seen(20, "id", "t", column("u", default="1"))]))
    assert revision.column == "u"


def test_dropped_column_of_a_keyless_table_becomes_null() -> None:
    versions = [seen(10, "id", "t"), seen(20, "id"), seen(30, "id", "u")]
    (revision,) = altered_columns(lives(versions[:1]), lives(versions), keeps_dropped=False)
    assert (revision.column, [(p.source, p.fill) for p in revision.pieces]) == ("t", [(Source.CONSTANT, NULL)])
    assert altered_columns(lives(versions[:2]), lives(versions), keeps_dropped=False) == ()
