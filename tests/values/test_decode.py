"""Values as a connector writes them are parsed by `from_json`, decoded, and compared with the plain JSON of what silver
stores. Each table of cases is one Spark job with one `from_json` for all of them, as in a merge."""

from __future__ import annotations

import base64
import json
import random
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from hashlib import md5
from typing import Any

import pytest
from pyspark.sql import Column as SparkColumn
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.connect_schema import columns_of, declared_column
from ingest.errors import ChangelogUnusable, ConfigError
from ingest.values.columns import Column
from ingest.values.decode import decode, undecodable
from ingest.values.render import json_object, rendered
from ingest.values.types import LogicalType, OutOfRange, parse, spark_type
from ingest.values.unavailable import is_unavailable
from ingest.values.wire_types import wire_spark_type

pytestmark = pytest.mark.spark

PLACEHOLDER = "__debezium_unavailable_value"
UNDECODABLE, UNAVAILABLE, CORRUPT = "<undecodable>", "<unavailable>", "<corrupt>"
FIRST, LAST = "0001-01-01T00:00:00", "9999-12-31T23:59:59.999999"
FIRST_ZONED = "0001-01-03T00:00:00Z"
Case = tuple[Any, str, Any]


@dataclass(frozen=True)
class Read:
    column: Column
    target: LogicalType


def column(written: Any) -> Column:
    """Returns a column. The text is a declared type, `type` or `type name` of a Connect schema, or a whole Connect
    schema."""
    if isinstance(written, str) and not written.startswith("connect:"):
        return declared_column("v", written)
    if isinstance(written, str):
        physical, _, name = written.removeprefix("connect:").partition(" ")
        written = {"type": physical} | ({"name": name} if name else {})
    (found,) = columns_of({"type": "struct", "fields": [written | {"field": "v"}]})
    return found


def decimal(scale: int, precision: int | None = None) -> dict[str, Any]:
    parameters = {"scale": str(scale)} | (
        {"connect.decimal.precision": str(precision)} if precision is not None else {}
    )
    return {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": parameters}


def bits(length: int) -> dict[str, Any]:
    return {"type": "bytes", "name": "io.debezium.data.Bits", "parameters": {"length": str(length)}}


def array(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def base64_of(raw: bytes) -> str:
    return json.dumps(base64.b64encode(raw).decode())


def unscaled(number: int) -> bytes:
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


def as_digits(kind: str, length: int, scale: int | None = None) -> dict[str, Any]:
    """Returns a number as its digits, with the type of its column at the source."""
    source = {"type": kind, "length": str(length)} | ({} if scale is None else {"scale": str(scale)})
    parameters = {f"__debezium.source.column.{name}": value for name, value in source.items()}
    items = {"type": "array", "items": {"type": "string"}} if kind.startswith("_") else {"type": "string"}
    return items | {"parameters": parameters}


VARIABLE = {
    "type": "struct",
    "name": "io.debezium.data.VariableScaleDecimal",
    "fields": [{"type": "int32", "field": "scale"}, {"type": "bytes", "field": "value"}],
}


def outcomes(spark: SparkSession, cases: Sequence[tuple[Read, str]], placeholder: str = PLACEHOLDER) -> list[Any]:
    """Returns per case the plain JSON value, or why there is none."""
    reads = {read: f"c{i}" for i, read in enumerate(dict.fromkeys(read for read, _ in cases))}
    schema = T.StructType([T.StructField(n, wire_spark_type(r.column.wire)) for r, n in reads.items()])
    schema.add("_corrupt", T.StringType())
    rows = [(i, reads[read], f'{{"{reads[read]}":{text}}}') for i, (read, text) in enumerate(cases)]
    parsed = F.from_json("value", schema, {"columnNameOfCorruptRecord": "_corrupt"})

    def any_of(checks: list[SparkColumn]) -> SparkColumn:
        return F.array_contains(F.array(*checks), True)

    wires = [(F.col(f"p.{name}"), read) for read, name in reads.items()]
    found = (
        spark.createDataFrame(rows, "i int, name string, value string")
        .select("i", "name", parsed.alias("p"))
        .select(
            "i",
            "name",
            "p._corrupt",
            any_of([is_unavailable(v, r.column.wire, placeholder) for v, r in wires]).alias("unavailable"),
            any_of([undecodable(v, r.column.wire, r.target) for v, r in wires]).alias("undecodable"),
            json_object(
                {n: rendered(decode(F.col(f"p.{n}"), r.column.wire, r.target), r.target) for r, n in reads.items()}
            ).alias("json"),
        )
        .orderBy("i")
        .collect()
    )
    return [
        CORRUPT
        if row._corrupt
        else UNAVAILABLE
        if row.unavailable
        else UNDECODABLE
        if row.undecodable
        else json.loads(row.json, parse_float=Decimal)[row.name]
        for row in found
    ]


def check(spark: SparkSession, cases: Sequence[Case], target: str | None = None) -> None:
    reads = []
    for written, text, _ in cases:
        own = column(written)
        reads.append((Read(own, own.type if target is None else parse(target)), text))
    got = outcomes(spark, reads)
    wrong = {
        f"{written} {text}": (value, expected)
        for (written, text, expected), value in zip(cases, got, strict=True)
        if value != expected
    }
    assert wrong == {}


TIME, DATA, CONNECT = "io.debezium.time.", "io.debezium.data.", "org.apache.kafka.connect.data."
NUMBERS: list[Case] = [
    ("connect:int8", "-128", -128),
    ("connect:int32", "2147483648", CORRUPT),
    ("connect:int32", '"5"', CORRUPT),
    ("connect:int64", "-9223372036854775808", -9223372036854775808),
    ("connect:float", "0.1", Decimal("0.1")),
    ("connect:double", '"-Infinity"', "-Infinity"),
    ("connect:double", "1e300", Decimal("1e300")),
    ("connect:boolean", "false", False),
    ("connect:boolean", "null", None),
    (f"connect:int32 {TIME}Year", "1969", 1969),
    ("int8", "127", 127),
    ("int8", "128", UNDECODABLE),
    ("int32", "1.5", UNDECODABLE),
    ("int32", '"many"', UNDECODABLE),
    ("int64", "9007199254740993", 9007199254740993),
    ("float64", "0.30000000000000004", Decimal("0.30000000000000004")),
    ("float64", "9007199254740993", UNDECODABLE),
    ("float64", "0.1234567890123456789", UNDECODABLE),
    ("float64", "100", Decimal("100.0")),
    ("float64", "1e-9", Decimal("1e-9")),
    ("float64", '"NaN"', "NaN"),
    ("float64", "null", None),
    ("float32", "33.33", Decimal("33.33")),
    ("float32", "33.333333333", UNDECODABLE),
    ("boolean_from_int", "0", False),
    ("boolean_from_int", "2", True),
    ("boolean", "true", True),
    ("boolean", '"perhaps"', UNDECODABLE),
    ("unknown", "null", None),
    ("unknown", "1", UNDECODABLE),
]
DECIMALS: list[Case] = [
    (decimal(2, 5), '"MDk="', "123.45"),
    (decimal(2, 5), "123.4", "123.40"),
    (decimal(2, 5), "123", "123.00"),
    (decimal(2, 5), "-0.01", "-0.01"),
    (decimal(2, 5), "1234.5", UNDECODABLE),
    (decimal(2, 5), "1.234", UNDECODABLE),
    (decimal(2, 5), '"not base64"', UNDECODABLE),
    (decimal(2, 5), '""', UNDECODABLE),
    (decimal(2, 5), "true", UNDECODABLE),
    (decimal(2, 5), "null", None),
    (decimal(0), '"1234"', str(int.from_bytes(base64.b64decode("1234"), "big", signed=True))),
    (decimal(0), "1234", "1234"),
    (decimal(0), "1E+3", "1000"),
    (decimal(9, 12), "1E-9", "0.000000001"),
    (decimal(9, 12), "0E-9", "0.000000000"),
    (decimal(9, 12), "1.5E-9", UNDECODABLE),
    (decimal(30, 38), "1E-9", UNDECODABLE),
    (decimal(0), base64_of(unscaled(2**64 - 1)), "18446744073709551615"),
    (decimal(0), base64_of(unscaled(-(2**63))), "-9223372036854775808"),
    (decimal(0), base64_of(unscaled(-(2**63) - 1)), "-9223372036854775809"),
    (decimal(3), base64_of(unscaled(10**38 - 1)), "9" * 35 + ".999"),
    (decimal(3), base64_of(unscaled(1 - 10**38)), "-" + "9" * 35 + ".999"),
    (decimal(0), base64_of(unscaled(10**38)), UNDECODABLE),
    (decimal(38, 38), base64_of(unscaled(1)), "0." + "0" * 37 + "1"),
    (decimal(-2, 5), base64_of(unscaled(12)), "1200"),
    (decimal(3, 65), base64_of(unscaled(10**60 + 7)), "1" + "0" * 57 + ".007"),
    (decimal(3, 65), "12.5", "12.5"),
    (decimal(3, 65), "1" * 39, UNDECODABLE),
    (decimal(9, 65), "1E-9", "0.000000001"),
    (VARIABLE, f'{{"scale":5,"value":{base64_of(unscaled(-7))}}}', "-0.00007"),
    (VARIABLE, f'{{"scale":-2,"value":{base64_of(unscaled(7))}}}', "700"),
    (VARIABLE, f'{{"scale":1,"value":{base64_of(unscaled(10**50))}}}', "1" + "0" * 49 + ".0"),
    (VARIABLE, '{"scale":1,"value":"?"}', UNDECODABLE),
    (VARIABLE, '{"scale":1}', UNDECODABLE),
    (VARIABLE, "null", None),
    (as_digits("NUMERIC", 10, 2), '"-12.50"', "-12.50"),
    (as_digits("NUMERIC", 10, 2), '"NAN"', UNDECODABLE),
    (as_digits("NUMERIC", 10, 2), '"POSITIVE_INFINITY"', UNDECODABLE),
    (as_digits("NUMERIC", 10, 2), "null", None),
    (as_digits("NUMERIC", 0), '"12.50"', "12.50"),
    (as_digits("NUMERIC", 131089, 0), '"12.50"', "12.50"),
    (as_digits("NUMERIC", 131089, 0), '"NAN"', "NaN"),
    (as_digits("NUMERIC", 0), '"POSITIVE_INFINITY"', "Infinity"),
    (as_digits("NUMERIC", 0), '"NEGATIVE_INFINITY"', "-Infinity"),
    (as_digits("NUMERIC", 0), '"many"', UNDECODABLE),
    (as_digits("NUMERIC", 45, 40), f'"0.{"0" * 39}1"', f"0.{'0' * 39}1"),
    (as_digits("NUMERIC", 5, 2046), '"12300"', "12300"),
    (as_digits("DECIMAL", 38, 38), f'"0.{"0" * 37}1"', f"0.{'0' * 37}1"),
    (as_digits("_NUMERIC", 10, 2), '["1.00",null]', ["1.00", None]),
    (as_digits("VARCHAR", 10), '"NAN"', "NAN"),
    ("decimal", "0.10", "0.1"),
    ("decimal", '"0.10"', "0.10"),
    ("decimal", f'"-{"7" * 50}.5"', "-" + "7" * 50 + ".5"),
    ("decimal", "7" * 39, UNDECODABLE),
    ("decimal", "1E-9", UNDECODABLE),
    ("decimal", '"NaN"', UNDECODABLE),
    ("decimal(5,2)", '"1.5"', "1.50"),
    ("decimal(5,2)", '"1.501"', UNDECODABLE),
    ("decimal(38,1)", f"{'9' * 37}.5", "9" * 37 + ".5"),
    ("decimal_from_base64(5,2)", '"MDk="', "123.45"),
]
TIMES: list[Case] = [
    (f"connect:int32 {TIME}Date", "-1", "1969-12-31"),
    (f"connect:int32 {CONNECT}Date", "2932897", "9999-12-31"),
    (f"connect:string {TIME}IsoDate", '"2024-02-29Z"', "2024-02-29"),
    (f"connect:string {TIME}IsoDate", '"2023-02-29Z"', UNDECODABLE),
    ("date", "19782", "2024-02-29"),
    ("date", '"2024-02-29"', "2024-02-29"),
    ("date", '"2024-02"', UNDECODABLE),
    ("date", '"today"', UNDECODABLE),
    (f"connect:int32 {TIME}Time", "3661001", "01:01:01.001"),
    (f"connect:int32 {CONNECT}Time", "0", "00:00:00"),
    (f"connect:int64 {TIME}MicroTime", "-45296000000", "-12:34:56"),
    (f"connect:int64 {TIME}MicroTime", "3020399000000", "838:59:59"),
    (f"connect:int64 {TIME}MicroTime", "9223372036854775807", UNDECODABLE),
    (f"connect:int64 {TIME}MicroTime", "-9223372036854775808", UNDECODABLE),
    (f"connect:int64 {TIME}NanoTime", "1000000001", "00:00:01.000000001"),
    (f"connect:string {TIME}IsoTime", '"10:20:30.500000Z"', "10:20:30.5"),
    (f"connect:string {TIME}ZonedTime", '"10:20:30.000000+02:00"', "10:20:30+02:00"),
    (f"connect:string {TIME}ZonedTime", '"10:20:30"', UNDECODABLE),
    ("time", '"24:00:00"', "24:00:00"),
    ("time", '"noon"', UNDECODABLE),
    (f"connect:int64 {TIME}Timestamp", "-1", "1969-12-31T23:59:59.999"),
    (f"connect:int64 {TIME}Timestamp", "9223372036825200000", LAST),
    (f"connect:int64 {TIME}Timestamp", "9223372036825200", LAST),
    (f"connect:int64 {TIME}Timestamp", "-9223372036854775808", FIRST),
    (f"connect:int64 {TIME}Timestamp", "253402300799999", "9999-12-31T23:59:59.999"),
    (f"connect:int64 {TIME}Timestamp", "9224318015999999", LAST),
    (f"connect:int64 {TIME}MicroTimestamp", "9223372036825200000", LAST),
    (f"connect:int64 {TIME}MicroTimestamp", "-9223372036832400000", FIRST),
    (f"connect:int64 {TIME}MicroTimestamp", "-62135596800000001", FIRST),
    (f"connect:int64 {TIME}MicroTimestamp", "-62135596800000000", FIRST),
    (f"connect:int64 {TIME}NanoTimestamp", "9223372036854775807", LAST),
    (f"connect:int64 {TIME}NanoTimestamp", "-9223372036854775808", FIRST),
    (f"connect:string {TIME}IsoTimestamp", '"+294276-12-31T23:59:59.999999Z"', LAST),
    (f"connect:string {TIME}IsoTimestamp", '"-4712-01-01T00:00:00Z"', FIRST),
    (f"connect:string {TIME}ZonedTimestamp", '"infinity"', LAST + "Z"),
    (f"connect:string {TIME}ZonedTimestamp", '"-infinity"', FIRST_ZONED),
    (f"connect:string {TIME}ZonedTimestamp", '"+294276-12-31T23:59:59.999999Z"', LAST + "Z"),
    (f"connect:string {TIME}ZonedTimestamp", '"-0043-03-15T10:00:00Z"', FIRST_ZONED),
    (f"connect:string {TIME}ZonedTimestamp", '"9999-12-31T23:59:59-01:00"', LAST + "Z"),
    (f"connect:string {TIME}ZonedTimestamp", '"9999-12-31T23:59:59+01:00"', "9999-12-31T22:59:59Z"),
    (f"connect:string {TIME}ZonedTimestamp", '"0001-01-01T00:00:00+01:00"', FIRST_ZONED),
    (f"connect:int32 {TIME}Date", "2146033979", "9999-12-31"),
    (f"connect:int32 {TIME}Date", "-2147472692", "9999-12-31"),
    (f"connect:int32 {TIME}Date", "-2147472691", "0001-01-01"),
    (f"connect:int32 {TIME}Date", "-735160", "0001-01-01"),
    (f"connect:int32 {TIME}Date", "-622191234", "9999-12-31"),
    (f"connect:int32 {TIME}Date", "-625821272", "0001-01-01"),
    (f"connect:int64 {TIME}MicroTimestamp", "-9223372036853775810", LAST),
    (f"connect:int64 {TIME}MicroTimestamp", "-9223372036854775808", FIRST),
    (f"connect:int64 {TIME}MicroTimestamp", "-210863520000000000", FIRST),
    (f"connect:int64 {TIME}Timestamp", "-9223372036832400000", FIRST),
    (f"connect:string {TIME}ZonedTimestamp", '"+292269055-12-02T23:00:00.000000Z"', FIRST_ZONED),
    (f"connect:string {TIME}ZonedTimestamp", '"+292278994-08-16T23:00:00.000000Z"', LAST + "Z"),
    (f"connect:int32 {TIME}Date", "2932896", "9999-12-31"),
    (f"connect:string {TIME}IsoDate", '"-5877611-06-21Z"', "9999-12-31"),
    (f"connect:string {TIME}IsoDate", '"-5877611-06-22Z"', "0001-01-01"),
    (f"connect:string {TIME}IsoDate", '"5874897-12-31"', "9999-12-31"),
    ("date", '"0044-03-15 BC"', "0001-01-01"),
    ("date", '"infinity"', "9999-12-31"),
    (f"connect:int64 {TIME}NanoTimestamp", "-1", "1969-12-31T23:59:59.999999"),
    (f"connect:int64 {TIME}NanoTimestamp", "1700000000123456789", "2023-11-14T22:13:20.123456"),
    (f"connect:string {TIME}IsoTimestamp", '"2024-02-29T01:02:03.100000Z"', "2024-02-29T01:02:03.1"),
    (f"connect:string {TIME}ZonedTimestamp", '"2024-02-29T01:02:03+02:00"', "2024-02-28T23:02:03Z"),
    (f"connect:string {TIME}ZonedTimestamp", '"2024-02-30T01:02:03Z"', UNDECODABLE),
    (f"connect:string {TIME}ZonedTimestamp", '"T01:02:03-01:00"', UNDECODABLE),
    (f"connect:string {TIME}ZonedTimestamp", '"2024-02-29T01:02:03"', UNDECODABLE),
    ("timestamp", '"2024-02-29 01:02:03"', "2024-02-29T01:02:03"),
    ("timestamp", '"2024-02-29T01:02:03+02:00"', UNDECODABLE),
    ("timestamp", "1700000000", UNDECODABLE),
    ("timestamp_tz_from_millis", "-62135596800000", FIRST_ZONED),
    ("timestamp_tz_from_millis", "1700000000123", "2023-11-14T22:13:20.123Z"),
    (f"connect:int64 {TIME}MicroDuration", "-5", -5),
    (f"connect:int64 {TIME}NanoDuration", "-1", -1),
    (f"connect:string {TIME}Interval", '"P1D"', "P1D"),
]
_INFINITE = f"connect:int64 {TIME}MicroTimestamp", "9223372036825200000"
_FAR = f"connect:int64 {TIME}MicroTimestamp", "601060312290123456"
_FAR_DAY = f"connect:int32 {TIME}Date", "-735160"
BY_RULE: list[tuple[OutOfRange, str, str, Any]] = [
    (OutOfRange.KEEP, *_INFINITE, "infinity"),
    (OutOfRange.KEEP, *_FAR, "+21016-11-04T13:51:30.123456"),
    (OutOfRange.KEEP, *_FAR_DAY, "-0043-03-15"),
    (OutOfRange.KEEP, f"connect:string {TIME}ZonedTimestamp", '"-infinity"', "-infinity"),
    (OutOfRange.KEEP, f"connect:int64 {TIME}MicroTimestamp", "-9223372036853775810", UNDECODABLE),
    (OutOfRange.KEEP, f"connect:int64 {TIME}MicroTimestamp", "-9223372036832400000", "-infinity"),
    (OutOfRange.KEEP, f"connect:int64 {TIME}MicroTimestamp", "-210863520000000000", "-4712-01-01T00:00:00"),
    (OutOfRange.SET_NULL, *_INFINITE, None),
    (OutOfRange.SET_NULL, *_FAR, None),
    (OutOfRange.SET_NULL, *_FAR_DAY, None),
    (OutOfRange.SET_NULL, f"connect:int64 {TIME}MicroTimestamp", "0", "1970-01-01T00:00:00"),
    (OutOfRange.SET_NULL, "date", '"soon"', UNDECODABLE),
    (OutOfRange.QUARANTINE, *_INFINITE, UNDECODABLE),
    (OutOfRange.QUARANTINE, *_FAR_DAY, UNDECODABLE),
    (OutOfRange.QUARANTINE, f"connect:string {TIME}ZonedTimestamp", '"infinity"', UNDECODABLE),
    (OutOfRange.QUARANTINE, f"connect:int32 {TIME}Date", "0", "1970-01-01"),
    (OutOfRange.CLAMP_INFINITE, *_INFINITE, LAST),
    (OutOfRange.CLAMP_INFINITE, *_FAR, UNDECODABLE),
    (OutOfRange.CLAMP_INFINITE, *_FAR_DAY, UNDECODABLE),
    (
        OutOfRange.CLAMP_INFINITE,
        f"connect:string {TIME}ZonedTimestamp",
        '"9999-12-31T23:59:59Z"',
        "9999-12-31T23:59:59Z",
    ),
]
REST: list[Case] = [
    ("connect:string", '"\\u00e9\\"\\\\\\n\\ud83d\\ude00"', 'é"\\\n😀'),
    ("connect:string", '""', ""),
    ("connect:bytes", '"AP8="', "AP8="),
    ("connect:bytes", '""', ""),
    ("connect:bytes", '"AP8"', UNDECODABLE),
    ("connect:bytes", '"A"', UNDECODABLE),
    (f"connect:string {DATA}Json", '"{\\"a\\":1.10}"', '{"a":1.10}'),
    (f"connect:string {DATA}EnumSet", '"a,b"', "a,b"),
    (bits(9), base64_of(b"\x01\x01"), 257),
    (bits(63), base64_of(b"\xff" * 7 + b"\x7f"), 2**63 - 1),
    (bits(64), base64_of(b"\xff" * 8), 2**64 - 1),
    (bits(100), base64_of(b"\x00" * 12 + b"\x08"), 2**99),
    (bits(200), base64_of(b"\x00" * 24 + b"\x08"), UNDECODABLE),
    (bits(200), base64_of(b"\x08" + b"\x00" * 24), 8),
    (bits(3), '"?"', UNDECODABLE),
    (array(decimal(1, 4)), f"[{base64_of(unscaled(15))},null,2.5]", ["1.5", None, "2.5"]),
    (array(decimal(1, 4)), "[2.55]", UNDECODABLE),
    (array(decimal(1, 4)), "[]", []),
    (array(array({"type": "double"})), '[[1.5,"NaN"],null]', [[Decimal("1.5"), "NaN"], None]),
    (array({"type": "int32"}), "5", CORRUPT),
    (array({"type": "string", "name": f"{TIME}ZonedTime"}), '["10:00"]', UNDECODABLE),
    ("map<string,decimal(3,1)>", '{"a":1.5,"b":null}', {"a": "1.5", "b": None}),
    ("map<string,decimal(3,1)>", '{"a":"x"}', UNDECODABLE),
    ("map<int32,date>", '[[1,"2024-02-29"],[2,null]]', {"1": "2024-02-29", "2": None}),
    ("map<int32,date>", '[[null,"2024-02-29"]]', UNDECODABLE),
    ("map<int32,date>", '[[1,"soon"]]', UNDECODABLE),
    ("map<int32,date>", "[[1]]", UNDECODABLE),
    ("map<int32,date>", "[]", {}),
    ("struct<a:decimal(3,1),`b c`:array<date>>", '{"a":1,"b c":[0]}', {"a": "1.0", "b c": ["1970-01-01"]}),
    ("struct<a:decimal(3,1),`b c`:array<date>>", '{"b c":null}', {"a": None, "b c": None}),
    ("struct<a:decimal(3,1),`b c`:array<date>>", '{"b c":["x"]}', UNDECODABLE),
    ("struct<a:decimal(3,1),`b c`:array<date>>", "null", None),
]
WRAPPED_UUID = str(uuid.UUID(bytes=md5(PLACEHOLDER.encode(), usedforsecurity=False).digest(), version=3))
BYTES = json.dumps(list(PLACEHOLDER.encode()))
DISGUISES: list[Case] = [
    ("connect:string", json.dumps(PLACEHOLDER), UNAVAILABLE),
    ("connect:string", base64_of(PLACEHOLDER.encode()), UNAVAILABLE),
    ("connect:string", json.dumps(PLACEHOLDER + " "), PLACEHOLDER + " "),
    ("connect:bytes", base64_of(PLACEHOLDER.encode()), UNAVAILABLE),
    (f"connect:string {DATA}Json", json.dumps(PLACEHOLDER), UNAVAILABLE),
    (decimal(2, 5), base64_of(PLACEHOLDER.encode()), UNAVAILABLE),
    (VARIABLE, f'{{"scale":0,"value":{base64_of(PLACEHOLDER.encode())}}}', UNAVAILABLE),
    (array({"type": "string"}), json.dumps([PLACEHOLDER]), UNAVAILABLE),
    (array({"type": "string"}), json.dumps([PLACEHOLDER, "b"]), [PLACEHOLDER, "b"]),
    (array({"type": "string", "name": f"{DATA}Uuid"}), json.dumps([WRAPPED_UUID]), UNAVAILABLE),
    (array({"type": "int16"}), BYTES, UNAVAILABLE),
    (array({"type": "float"}), BYTES, UNAVAILABLE),
    (array({"type": "int64", "name": f"{TIME}MicroTimestamp"}), BYTES, UNAVAILABLE),
    (array(decimal(0)), BYTES, UNAVAILABLE),
    (array({"type": "int32"}), "[]", []),
    (array({"type": "int32"}), "[95]", [95]),
    ("array<date>", BYTES, UNAVAILABLE),
    ("array<float64>", BYTES, UNAVAILABLE),
    ("array<int64>", BYTES, UNAVAILABLE),
    ("array<int64>", '["x"]', UNDECODABLE),
    ("map<string,string>", json.dumps({PLACEHOLDER: PLACEHOLDER}), UNAVAILABLE),
    ("array<map<string,string>>", json.dumps([{PLACEHOLDER: PLACEHOLDER}]), UNAVAILABLE),
    ("struct<wkb:bytes,srid:int32>", f'{{"wkb":{base64_of(PLACEHOLDER.encode())}}}', UNAVAILABLE),
]


@pytest.mark.parametrize(
    "cases",
    [NUMBERS, DECIMALS, TIMES, REST, DISGUISES],
    ids=["numbers", "decimals", "times", "rest", "disguises"],
)
def test_value_is_decoded_exactly_or_refused(spark: SparkSession, cases: list[Case]) -> None:
    check(spark, cases)


def test_times_out_of_range_follow_the_rule(spark: SparkSession) -> None:
    def ruled(rule: OutOfRange, written: Any) -> Read:
        own = column(written)
        return Read(replace(own, wire=own.wire.with_out_of_range(rule)), own.type)

    got = outcomes(spark, [(ruled(rule, written), text) for rule, written, text, _ in BY_RULE])
    assert [(*case[:3], value) for case, value in zip(BY_RULE, got, strict=True)] == BY_RULE


def test_decimals_of_any_width_are_exact(spark: SparkSession) -> None:
    source = random.Random(7)
    numbers = [source.randrange(-(2 ** (8 * width - 1)), 2 ** (8 * width - 1)) for width in range(1, 42)] * 2
    exact = Context(prec=200)
    cases: list[Case] = [
        (
            VARIABLE,
            f'{{"scale":{scale},"value":{base64_of(unscaled(number))}}}',
            f"{Decimal(number).scaleb(-scale, exact):f}",
        )
        for scale, number in enumerate(numbers)
    ]
    check(spark, cases)


@pytest.mark.parametrize(
    ("target", "cases"),
    [
        ("int64", [("connect:int8", "5", 5)]),
        ("float64", [("connect:float", "0.5", Decimal("0.5")), ("connect:int32", "2", Decimal("2.0"))]),
        ("decimal(12,4)", [("connect:int16", "5", "5.0000"), (decimal(2, 5), '"MDk="', "123.4500")]),
        ("decimal_text", [("connect:int64", "5", "5"), (decimal(2, 5), '"MDk="', "123.45")]),
        ("timestamp", [("connect:int32 io.debezium.time.Date", "1", "1970-01-02T00:00:00")]),
        ("bits(70)", [(bits(2), '"Aw=="', 3)]),
        ("string", [(f"connect:string {DATA}Enum", '"a"', "a"), ("unknown", "null", None)]),
        ("array<int64>", [(array({"type": "int8"}), "[1,null]", [1, None])]),
        ("struct<a:int64,b:date>", [("struct<a:int8>", '{"a":1}', {"a": 1, "b": None})]),
    ],
)
def test_value_is_decoded_into_a_wider_column(spark: SparkSession, target: str, cases: list[Case]) -> None:
    check(spark, cases, target)


def test_stored_type_matches_the_logical_type(spark: SparkSession) -> None:
    for written, _, _ in [*NUMBERS, *DECIMALS, *TIMES, *REST]:
        own = column(written)
        frame = spark.range(1).select(F.lit(None).cast(wire_spark_type(own.wire)).alias("v"))
        stored = frame.select(decode(F.col("v"), own.wire, own.type).alias("v")).schema["v"].dataType
        assert stored.simpleString() == spark_type(own.type).simpleString(), written


def test_hexadecimal_placeholder_means_its_bytes(spark: SparkSession) -> None:
    texts = ["connect:string", "connect:bytes", array({"type": "int32"})]
    reads = [Read(found, found.type) for found in map(column, texts)]
    cases = list(zip(reads, ['"no\xff"', '"bm//"', "[110,111,-1]"], strict=True))
    assert outcomes(spark, cases, "hex:6e6fff") == ["no\xff", UNAVAILABLE, UNAVAILABLE]
    with pytest.raises(ConfigError):
        is_unavailable(F.lit("a"), reads[0].column.wire, "hex:xyz")


def test_incompatible_kinds_are_refused(spark: SparkSession) -> None:
    with pytest.raises(ChangelogUnusable, match="can't become int32"):
        decode(F.lit("a"), column("connect:string").wire, parse("int32"))
