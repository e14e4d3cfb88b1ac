"""Casts here are those of Postgres: for each pair of types a table is altered there, and its values from before, cast
here, are those that it has then. A value that isn't known here is null."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import Connection
from pyspark.sql import Column as SparkColumn
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ingest.stack import Stack
from ingest.values.postgres_cast import Cast, has_cast, postgres_cast
from ingest.values.temporal import date_from_text, time_from_text, timestamp_from_text, timestamp_tz_from_text
from ingest.values.types import Kind, LogicalType, OutOfRange, array_of, decimal_of, spark_type

pytestmark = [pytest.mark.spark, pytest.mark.integration]

TEXTS = [
    *("7", "-7", " 007 ", "+1", "1.5", "-0.00", ".5", "5.", "1e3", "0x10", "1_000", "NaN", "Infinity", "99999999999"),
    *("true", "T", "yes", "off", "0", "2026-03-01", "2026-03-01 08:00", "2026-03-01T08:00:00.1234567", "1.2345678901"),
    *("2026-03-01 08:00:00+02", "12:34:56.700", "12:34", "24:00:00", "2F3C1B1E-0000-4000-8000-000000000001", "", "a b"),
    *(
        "{}",
        '{"b":1.50,"a":2}',
        '"x"',
        "null",
        "grün 😀",
        "a\\b",
        "\\x00ff",
        "on",
        "epoch",
        "infinity",
        "0044-03-15 BC",
    ),
    *("9999-12-31", "0001-01-01", "[1,2]", "{1,2}", "123456.785", "1.005", "-1.005", "<a/>", "2026-13-01", "3/4/2026"),
]
FLOATS = [
    "0",
    "-0",
    "1",
    "2.5",
    "-2.5",
    "3.5",
    "0.1",
    "0.3",
    "1e15",
    "123456",
    "1234567",
    "1e14",
    "1e-5",
    "0.0001",
    "NaN",
]
FLOATS += [
    "1e20",
    "-1e-7",
    "1.005",
    "2.675",
    "0.5",
    "1.5",
    "99999.995",
    "16777217",
    "Infinity",
    "-Infinity",
    "1e6",
    "1e5",
]
DOUBLES = [*FLOATS, "0.30000000000000004", "123456789012345.67", "1.7976931348623157e308", "5e-324", "1234567890.12345"]
DOUBLES += ["0.000123456789012345", "999999999999999.9", "1e300", "2.2250738585072014e-308", "9007199254740993"]
NUMERICS = ["0", "7", "7.50", "-0.01", "0.005", "2.5", "-2.5", "99999999.99", "123.45", "1"]
MOMENTS = ["2026-03-01 00:00:00", "2026-03-29 01:30:00", "2026-10-25 00:30:00.5", "1969-12-31 23:59:59.999999"]
MOMENTS += ["0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "infinity", "-infinity", "0044-03-15 00:00:00 BC"]
MOMENTS += ["2026-07-01 12:00:00.123", "1900-01-01 00:00:00", "20000-01-01 00:00:00"]
TYPES: dict[str, tuple[LogicalType, list[str]]] = {
    "smallint": (LogicalType(Kind.INT16), ["0", "1", "-32768", "32767"]),
    "integer": (LogicalType(Kind.INT32), ["0", "1", "7", "-2147483648", "2147483647", "16777217"]),
    "bigint": (LogicalType(Kind.INT64), ["0", "1", "-9223372036854775808", "9223372036854775807", "9007199254740993"]),
    "real": (LogicalType(Kind.FLOAT32), FLOATS),
    "double precision": (LogicalType(Kind.FLOAT64), DOUBLES),
    "numeric(10,2)": (decimal_of(10, 2), NUMERICS),
    "numeric(20,8)": (decimal_of(20, 8), [*NUMERICS, "0.00000001", "-0.5", "123456789012.12345678"]),
    "numeric": (LogicalType(Kind.DECIMAL_TEXT), [*NUMERICS, "NaN", "1e40", "1.005", "-1.10", "0.0000001", "1e-30"]),
    "boolean": (LogicalType(Kind.BOOLEAN), ["true", "false"]),
    "text": (LogicalType(Kind.STRING), TEXTS),
    "character varying(20)": (LogicalType(Kind.STRING), ["7", "", " x ", "true"]),
    "bytea": (LogicalType(Kind.BYTES), ["", "\\x00ff", "abc"]),
    "date": (
        LogicalType(Kind.DATE),
        [*(m[:10] for m in MOMENTS if m[4] == "-"), "infinity", "0044-03-15 BC", "20000-01-01"],
    ),
    "timestamp without time zone": (LogicalType(Kind.TIMESTAMP), MOMENTS),
    "timestamp with time zone": (LogicalType(Kind.TIMESTAMP_TZ), MOMENTS),
    "time without time zone": (LogicalType(Kind.TIME), ["00:00:00", "12:34:56.7", "24:00:00", "23:59:59.999999"]),
    "uuid": (LogicalType(Kind.UUID), ["2F3C1B1E-0000-4000-8000-000000000001"]),
    "jsonb": (LogicalType(Kind.JSON), ["{}", '{"b":1.50,"a":2}', '"x"', "null", "7", "true"]),
    "json": (LogicalType(Kind.JSON), ['{"b":1.50, "a":2}', "null"]),
    "xml": (LogicalType(Kind.XML), ["<a>1</a>"]),
    "mood": (LogicalType(Kind.ENUM), ["on", "a b"]),
    "integer[]": (array_of(LogicalType(Kind.INT32)), ["{}", "{1,NULL,-3}"]),
    "bigint[]": (array_of(LogicalType(Kind.INT64)), ["{9007199254740993}"]),
    "numeric(10,2)[]": (array_of(decimal_of(10, 2)), ["{1.5,NULL}"]),
    "boolean[]": (array_of(LogicalType(Kind.BOOLEAN)), ["{t,f,NULL}"]),
    "text[]": (
        array_of(LogicalType(Kind.STRING)),
        ['{a,"",NULL,"NULL","a b","a,b"}', '{"a\\"b\\\\c","{}","grün"}', "{1,2}"],
    ),
    "timestamp without time zone[]": (array_of(LogicalType(Kind.TIMESTAMP)), ['{"2026-03-01 00:00:00",NULL}']),
}
"""Type of Postgres → logical type of its values in events, and some values as text."""
WHOLE = {
    "smallint": {"integer", "bigint", "numeric(10,2)", "numeric", "double precision", "text", "boolean"},
    "integer": {"bigint", "numeric(10,2)", "numeric", "double precision", "text", "boolean"},
    "bigint": {"numeric", "numeric(20,8)", "double precision", "text"},
    "numeric(10,2)": {"numeric", "numeric(20,8)", "text", "integer", "double precision"},
    "numeric": {"text"},
    "boolean": {"text", "integer"},
    "character varying(20)": {"text"},
    "uuid": {"text"},
    "jsonb": {"text"},
    "mood": {"text"},
    "bytea": {"text"},
    "time without time zone": {"text"},
    "integer[]": {"bigint[]", "text[]", "text"},
    "text[]": {"text"},
    "boolean[]": {"text"},
}
"""Pairs of types of which every value is known, besides those that Postgres refuses."""
CUT = "character varying(20)"
CLAMPED = {("date", "timestamp without time zone"): {"infinity", "20000-01-01"}}
"""Values beyond the last day of a date, which is stored for them and stays midnight."""
OTHER_INTEGERS = {"smallint", "bigint"}


@pytest.fixture(scope="module")
def connection() -> Iterator[Connection]:
    with Stack(parts=("postgres",)) as stack, psycopg.connect(stack.postgres.dsn, autocommit=True) as found:
        found.execute("CREATE TYPE mood AS ENUM ('on', 'a b')")
        yield found


Exported = tuple[str | None, str | None]
"""A value before and after the change of its column's type, as text (arrays: as JSON)."""


def altered(connection: Connection, before: str, after: str, zone: str) -> list[Exported]:
    """Returns the values of a table before and after its column changes its type there."""
    connection.execute(f"SET TIME ZONE '{zone}'".encode())
    using = conversion(before, after)
    written = [value for value in TYPES[before][1] if is_cast(connection, before, using, value)]
    if not written:
        return []
    connection.execute(f"CREATE TABLE t (id serial, v {before})".encode())
    for value in written:
        connection.execute(f"INSERT INTO t (v) VALUES (CAST(%s AS {before}))".encode(), (value,))
    old = exported(connection, before)
    connection.execute(f"SET TIME ZONE '{zone}'; ALTER TABLE t ALTER v TYPE {after} USING {using}".encode())
    new = exported(connection, after)
    connection.execute("DROP TABLE t")
    return list(zip(old, new, strict=True))


def conversion(before: str, after: str) -> str:
    """Returns the cast of `v`; other integers than `integer` and boolean have none, but by an integer."""
    return (
        f"v::integer::{after}" if "boolean" in (before, after) and {before, after} & OTHER_INTEGERS else f"v::{after}"
    )


def exported(connection: Connection, type_: str) -> list[str | None]:
    form = "to_json(v)" if type_.endswith("[]") else "v"
    connection.execute("SET TIME ZONE 'UTC'")
    return [row[0] for row in connection.execute(f"SELECT {form}::text FROM t ORDER BY id".encode())]


def is_cast(connection: Connection, before: str, using: str, value: str) -> bool:
    try:
        connection.execute(f"SELECT {using} FROM (SELECT CAST(%s AS {before}) AS v) AS t".encode(), (value,))
    except psycopg.Error:
        return False
    return True


def stored(text: SparkColumn, type_: LogicalType) -> SparkColumn:
    """Returns an exported value as silver has it."""
    match type_.kind:
        case Kind.ARRAY:
            parts = F.from_json(text, "array<string>")
            return F.transform(parts, lambda one: stored(one, type_.elements[0]))
        case Kind.BYTES:
            return F.unhex(F.substr(text, F.lit(3)))
        case Kind.DATE:
            return date_from_text(text, OutOfRange.CLAMP)
        case Kind.TIMESTAMP:
            return timestamp_from_text(text, OutOfRange.CLAMP)
        case Kind.TIMESTAMP_TZ:
            return timestamp_tz_from_text(text, OutOfRange.CLAMP)
        case Kind.TIME:
            return time_from_text(text)
        case _:
            return text.try_cast(spark_type(type_))


def is_compared(before: str, after: str) -> bool:
    """Returns False for types that look alike in events, and for one whose explicit cast cuts values short."""
    return TYPES[before][0] != TYPES[after][0] and after != CUT


def differences(
    spark: SparkSession, connection: Connection, before: str, zone: str = "UTC"
) -> tuple[list[Any], dict[str, list[str | None]]]:
    """Returns the values whose cast here differs from that of Postgres, and for each type those not known here."""
    found = {after: altered(connection, before, after, zone) for after in TYPES if is_compared(before, after)}
    targets = {
        n: after for n, after in enumerate(found) if found[after] and has_cast(TYPES[before][0], TYPES[after][0])
    }
    rows = [(n, i, old, new) for n, after in targets.items() for i, (old, new) in enumerate(found[after])]
    different: list[Any] = []
    unknown: dict[str, list[str | None]] = {}
    frame = spark.createDataFrame(rows, "n int, i int, old string, new string")
    for n, after in targets.items():
        type_ = TYPES[after][0]
        old = stored(F.col("old"), TYPES[before][0])
        ours, theirs = postgres_cast(old, Cast(TYPES[before][0], type_, zone)), stored(F.col("new"), type_)
        same = ours.eqNullSafe(theirs) | (
            F.isnan(ours) & F.isnan(theirs) if type_.kind.startswith("float") else F.lit(False)
        )
        compared = frame.where(F.col("n") == n).select(
            "old", "new", ours.isNull().alias("is_unknown"), same.alias("is_same"), ours.cast("string").alias("ours")
        )
        for row in compared.collect():
            if row["is_unknown"]:
                unknown.setdefault(after, []).append(row["old"])
            elif not row["is_same"] and row["old"] not in CLAMPED.get((before, after), ()):
                different.append((before, after, row["old"], row["new"], row["ours"]))
    return different, unknown


@pytest.mark.parametrize("before", TYPES)
def test_values_are_those_that_postgres_has_after_the_change(
    spark: SparkSession, connection: Connection, before: str
) -> None:
    different, unknown = differences(spark, connection, before)
    assert different == []
    assert {after: values for after, values in unknown.items() if after in WHOLE.get(before, ())} == {}


@pytest.mark.parametrize("before", [t for t, (type_, _) in TYPES.items() if type_.kind in (Kind.DATE, Kind.TIMESTAMP)])
def test_timestamps_follow_the_zone_of_the_session(spark: SparkSession, connection: Connection, before: str) -> None:
    different, unknown = differences(spark, connection, before, "Europe/Berlin")
    assert different == []
    assert "2026-07-01 12:00:00.123" not in unknown.get("timestamp with time zone", ())
