"""Logical types: their text, their type in silver, and the common type of two."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.changelog.connect_schema import columns_of, declared_column
from ingest.errors import ChangelogUnusable, ConfigError
from ingest.values.columns import Encoding
from ingest.values.types import (
    Kind,
    LogicalType,
    array_of,
    decimal_of,
    map_of,
    parse,
    spark_type,
    struct_of,
    widest,
)

_PLAIN = [kind for kind in Kind if kind not in (Kind.DECIMAL, Kind.BITS, Kind.ARRAY, Kind.MAP, Kind.STRUCT)]
_scalars = st.one_of(
    st.sampled_from(_PLAIN).map(LogicalType),
    st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: LogicalType(Kind.DECIMAL, p, s))),
    st.integers(1, 100).map(lambda length: LogicalType(Kind.BITS, length)),
)
_types = st.recursive(
    _scalars,
    lambda inner: st.one_of(
        inner.map(array_of),
        st.tuples(inner, inner).map(lambda pair: map_of(*pair)),
        st.dictionaries(st.text(min_size=1, max_size=5), inner, max_size=3).map(struct_of),
    ),
    max_leaves=5,
)


@given(_types)
@settings(deadline=None)
def test_type_round_trips_through_its_text(one: LogicalType) -> None:
    assert parse(str(one)) == one


@given(_types, _types)
def test_widest_does_not_depend_on_the_order(a: LogicalType, b: LogicalType) -> None:
    left, right = widest(a, b), widest(b, a)
    if Kind.STRUCT.value in str(left):
        assert (left is None) == (right is None)  # the order of fields is the one of arrival
    else:
        assert left == right


@given(_scalars, _scalars, _scalars)
def test_widest_does_not_depend_on_the_grouping(a: LogicalType, b: LogicalType, c: LogicalType) -> None:
    ab, bc = widest(a, b), widest(b, c)
    if ab is not None and bc is not None:
        assert widest(ab, c) == widest(a, bc)


@given(_types)
def test_widest_is_idempotent_and_unknown_is_its_least_element(one: LogicalType) -> None:
    assert widest(one, one) == one
    assert widest(one, LogicalType(Kind.UNKNOWN)) == one


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("int8", "int64", "int64"),
        ("float32", "float64", "float64"),
        ("int32", "float64", "float64"),
        ("int16", "float32", "float64"),
        ("int64", "float64", None),
        ("decimal(10,2)", "decimal(8,4)", "decimal(12,4)"),
        ("int32", "decimal(5,2)", "decimal(12,2)"),
        ("int64", "decimal(5,2)", "decimal(22,2)"),
        ("int64", "decimal(38,20)", "decimal_text"),
        ("decimal(38,0)", "decimal(38,2)", "decimal_text"),
        ("decimal(38,10)", "decimal_text", "decimal_text"),
        ("float64", "decimal(10,2)", None),
        ("enum", "string", "string"),
        ("json", "uuid", "string"),
        ("string", "int32", None),
        ("bits(3)", "bits(70)", "bits(70)"),
        ("date", "timestamp", "timestamp"),
        ("timestamp", "timestamp_tz", None),
        ("boolean", "int8", None),
        ("array<int32>", "array<int64>", "array<int64>"),
        ("array<int32>", "array<string>", None),
        ("array<int32>", "int32", None),
        ("map<string,int8>", "map<string,unknown>", "map<string,int8>"),
        ("struct<a:int8,b:string>", "struct<a:int32,c:date>", "struct<a:int32,b:string,c:date>"),
        ("struct<a:int8>", "struct<a:date>", None),
    ],
)
def test_widest_of_two_types(a: str, b: str, expected: str | None) -> None:
    assert widest(parse(a), parse(b)) == (None if expected is None else parse(expected))


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("decimal(10,3)", "decimal(10,3)"),
        ("decimal_text", "string"),
        ("time", "string"),
        ("timestamp", "timestamp_ntz"),
        ("timestamp_tz", "timestamp"),
        ("bits(63)", "bigint"),
        ("bits(64)", "decimal(20,0)"),
        ("bits(65)", "decimal(38,0)"),
        ("interval_micros", "bigint"),
        ("bytes", "binary"),
        ("unknown", "string"),
        ("struct<a:array<date>,`b c`:map<string,int8>>", "struct<a:array<date>,b c:map<string,tinyint>>"),
    ],
)
def test_stored_types_of_silver(text: str, stored: str) -> None:
    assert spark_type(parse(text)).simpleString() == stored


@pytest.mark.parametrize(
    "text",
    ["decimal", "decimal(39,2)", "decimal(2,3)", "bits", "int", "array<", "array<int8", "map<int8>", "x y"],
)
def test_invalid_type_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse(text)


def test_decimals_beyond_38_digits_are_text() -> None:
    assert decimal_of(38, 4) == LogicalType(Kind.DECIMAL, 38, 4)
    assert decimal_of(39, 4) == LogicalType(Kind.DECIMAL_TEXT)


def _decimal(**parameters: str) -> dict[str, object]:
    return {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": parameters}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "int32", "name": "io.debezium.time.Date"}, "date"),
        ({"type": "int64", "name": "io.debezium.time.NanoTimestamp"}, "timestamp"),
        ({"type": "string", "name": "io.debezium.time.IsoTime"}, "time"),
        ({"type": "string", "name": "io.debezium.time.MicroTimestamp"}, "string"),
        ({"type": "string", "name": "com.example.Unheard"}, "string"),
        (_decimal(scale="2"), "decimal(38,2)"),
        (_decimal(**{"scale": "4", "connect.decimal.precision": "2"}), "decimal(4,4)"),
        (_decimal(**{"scale": "-2", "connect.decimal.precision": "5"}), "decimal(7,0)"),
        (_decimal(**{"scale": "3", "connect.decimal.precision": "65"}), "decimal_text"),
        ({"type": "bytes", "name": "io.debezium.data.Bits", "parameters": {"length": "9"}}, "bits(9)"),
    ],
)
def test_types_of_connect_schemas(schema: dict[str, object], expected: str) -> None:
    (column,) = columns_of({"type": "struct", "fields": [schema | {"field": "c"}]})
    assert str(column.type) == expected


def test_column_keeps_its_default_flag() -> None:
    fields = [
        {"type": "int32", "field": "a", "optional": False, "default": 7},
        {"type": "string", "field": "b", "optional": True, "default": None},
        {"type": "string", "field": "c", "optional": True},
    ]
    a, b, c = columns_of({"type": "struct", "fields": fields})
    assert (a.optional, a.default, a.has_default) == (False, "7", True)
    assert (b.default, b.has_default) == ("null", True)
    assert (c.default, c.has_default) == (None, False)


@pytest.mark.parametrize("schema", [{"type": "string"}, {"type": "struct", "fields": [{"type": "x", "field": "a"}]}])
def test_schema_without_a_row_is_refused(schema: dict[str, object]) -> None:
    with pytest.raises(ChangelogUnusable):
        columns_of(schema)


@pytest.mark.parametrize(
    ("text", "encoding", "expected"),
    [
        ("time_from_micros", Encoding.TIME_OF_DAY, "time"),
        ("timestamp(us)", Encoding.TIMESTAMP_TEXT, "timestamp"),
        ("timestamp_tz_from_millis", Encoding.EPOCH, "timestamp_tz"),
        ("boolean_from_int", Encoding.BOOLEAN, "boolean"),
        ("interval(iso)", Encoding.TEXT, "interval_iso"),
        ("decimal", Encoding.DECIMAL_PLAIN, "decimal_text"),
        ("decimal(?,2)", Encoding.DECIMAL_PLAIN, "decimal(38,2)"),
        ("decimal_from_base64(5,1)", Encoding.DECIMAL_UNSCALED, "decimal(5,1)"),
        ("array<date_from_days>", Encoding.ARRAY, "array<date>"),
        ("map<string,int8>", Encoding.MAP, "map<string,int8>"),
        ("map<int8,string>", Encoding.MAP_ENTRIES, "map<int8,string>"),
        ("unknown", Encoding.NOTHING, "unknown"),
    ],
)
def test_declared_type_has_an_encoding(text: str, encoding: Encoding, expected: str) -> None:
    column = declared_column("c", text)
    assert (column.wire.encoding, str(column.type)) == (encoding, expected)


@pytest.mark.parametrize("text", ["timestamp_from_years", "interval", "decimal(3)", "int64(2)", "string<int8>"])
def test_invalid_declared_type_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        declared_column("c", text)
