"""Types of a source's columns by name, as a connector writes them in each of its modes."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from typing import Any, Literal

from ingest.testing.type_forms import (
    CONNECT,
    DATA,
    TIME,
    SourceType,
    array_of,
    bits_text,
    date_type,
    decimal_type,
    iso_text,
    named,
    number_type,
    read_decimal,
    text_type,
    time_type,
    timestamp_type,
    variable_decimal,
    written_decimal_type,
)

Mode = Literal["adaptive", "connect", "iso", "nanos"]
"""Settings of a connector: `time.precision.mode` (`nanos` also writes decimals and hstore as text, intervals as
numbers)."""
MODES: tuple[Mode, ...] = ("adaptive", "connect", "iso", "nanos")

_FIXED = [datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 1, 8, 0, 0, 1, UTC), datetime(1969, 7, 20, tzinfo=UTC)]
_LETTERS = ("a", "b", "c'd", 'e"f\\', "grün 😀", "", "a,b", "null", "7", "x" * 40)
_POINT: list[dict[str, Any]] = [{"field": "x", "type": "double"}, {"field": "y", "type": "double"}]
_POINT += [{"field": "wkb", "type": "bytes", "optional": True}, {"field": "srid", "type": "int32", "optional": True}]
_COMPOSITE: list[dict[str, Any]] = [{"field": "a b", "type": "int32", "optional": True}]
_COMPOSITE += [{"field": "c,d", "type": "string", "optional": True}]
_STRINGS = {"type": "map", "keys": {"type": "string"}, "values": {"type": "string", "optional": True}}
_ENTRIES = {"type": "map", "keys": {"type": "int32"}, "values": {"type": "string", "optional": True}}
_INTEGERS = number_type("int32", *range(1, 10), -7, 2**31 - 1, is_key=True)
_BIGINTS = number_type("int64", *range(1, 8), 2**53 + 1, -(2**63), 2**63 - 1, is_key=True)
_TEXTS = text_type(None, *_LETTERS, is_key=True, is_large=True)
_UUIDS = text_type(
    f"{DATA}Uuid", *(f"7c1f0c1e-0000-4000-8000-00000000000{n}" for n in range(9)), declared="uuid", is_key=True
)
_NUMERIC = decimal_type(10, 2, "0.00", "123.45", "-0.01", "99999999.99")
_FREE = SourceType(
    named("struct", f"{DATA}VariableScaleDecimal")
    | {"fields": [{"field": "scale", "type": "int32"}, {"field": "value", "type": "bytes"}]},
    tuple(map(Decimal, ("0", "12.345", "-1.5", "1" + "0" * 45 + ".5"))),
    variable_decimal,
    read_decimal,
    has_defaults=False,
)
_LONG = decimal_type(40, 3, "0.000", "1.500", "-" + "9" * 37 + ".999")

_ALWAYS: dict[str, SourceType] = {
    "boolean": number_type("boolean", True, False),
    "tinyint": number_type("int8", 1, -128, 127),
    "smallint": number_type("int16", *range(1, 8), -32768, is_key=True),
    "integer": _INTEGERS,
    "bigint": _BIGINTS,
    "year": SourceType(named("int32", f"{TIME}Year"), (1999, 2026), declared="int32"),
    "real": number_type("float", 0.5, -2.25, 16777216.0, logical="float32"),
    "double precision": number_type("double", 0.1, 2.5, -1e300, logical="float64"),
    "money": decimal_type(None, 2, "0.00", "1234.11", "-123.40"),
    "text": _TEXTS,
    "character varying(20)": text_type(None, *_LETTERS[:9], is_key=True),
    "bytea": SourceType(
        {"type": "bytes"},
        (b"", b"\x00\x01\xff", b"abc"),
        lambda v: b64encode(v).decode(),
        b64decode,
        "bytes",
        is_large=True,
        has_defaults=False,
    ),
    "time with time zone": text_type(f"{TIME}ZonedTime", "01:00:00Z", "23:59:59.000001Z", declared="time_tz"),
    "timestamp with time zone": SourceType(
        named("string", f"{TIME}ZonedTimestamp"),
        tuple(_FIXED),
        lambda v: iso_text(v.astimezone(UTC)),
        datetime.fromisoformat,
        "timestamp_tz",
    ),
    "jsonb": text_type(
        f"{DATA}Json", '{"a": [1, null]}', "[]", '"text"', "null", '{"b": 1.50}', declared="json", is_large=True
    ),
    "xml": text_type(f"{DATA}Xml", "<a/>", "<a>1 &lt; 2</a>", declared="xml", is_large=True),
    "uuid": _UUIDS,
    "ltree": text_type(f"{DATA}Ltree", "a.b", "top", declared="ltree"),
    "mood": replace(
        text_type(f"{DATA}Enum", "on", "off", "it's", declared="enum"),
        schema=named("string", f"{DATA}Enum", allowed="on,off,it's"),
    ),
    "set": replace(
        text_type(None, "a", "a,b", ""), schema=named("string", f"{DATA}EnumSet", allowed="a,b"), has_defaults=False
    ),
    "bit(9)": SourceType(
        named("bytes", f"{DATA}Bits", length="9"), (0, 1, 257, 511), bits_text, int, "bits(9)", has_defaults=False
    ),
    "integer[]": array_of(_INTEGERS),
    "bigint[]": array_of(_BIGINTS),
    "text[]": array_of(_TEXTS, ["a", None], [], ['b"c', "d,e"]),
    "uuid[]": array_of(_UUIDS),
    "entries": SourceType(
        _ENTRIES,
        ({1: "a"}, {2: None, 3: "b"}),
        lambda v: [[k, one] for k, one in v.items()],
        lambda v: {int(k): one for k, one in v.items()},
        has_defaults=False,
    ),
    "point": SourceType(
        named("struct", f"{DATA}geometry.Point") | {"fields": _POINT},
        ({"x": 1.5, "y": -2.5, "wkb": "AQ==", "srid": None},),
        has_defaults=False,
    ),
    "composite": SourceType(
        {"type": "struct", "fields": _COMPOSITE},
        ({"a b": 1, "c,d": "e"}, {"a b": None, "c,d": None}),
        has_defaults=False,
    ),
}
_DATES = date_type(named("int32", f"{TIME}Date"), "date_from_days")
_NUMERICS = {"numeric(10,2)": _NUMERIC, "numeric": _FREE, "numeric(40,3)": _LONG}
_PRECISE = {
    **_NUMERICS,
    "numeric(10,2)[]": array_of(_NUMERIC),
    "hstore": SourceType(_STRINGS, ({"a b": "c", "d": None}, {}), is_large=True, has_defaults=False),
    "interval": text_type(
        f"{TIME}Interval", "P1Y2M3DT4H5M6.78S", "P0Y0M0DT0H0M0S", declared="interval_iso", has_defaults=False
    ),
}
_MICROS = timestamp_type(named("int64", f"{TIME}MicroTimestamp"), 1, "timestamp_from_micros")
_MILLIS = timestamp_type(named("int64", f"{TIME}Timestamp"), 1000, "timestamp_from_millis")


def _of_mode(date: SourceType, time: SourceType, long: SourceType, short: SourceType) -> dict[str, SourceType]:
    return {
        "date": date,
        "time without time zone": time,
        "timestamp without time zone": long,
        "timestamp(3) without time zone": short,
        "timestamp without time zone[]": array_of(long),
        "date[]": array_of(date),
    }


_NANOS = timestamp_type(named("int64", f"{TIME}NanoTimestamp"), 0, "timestamp_from_nanos")
_ISO = timestamp_type(named("string", f"{TIME}IsoTimestamp"), 1, "timestamp", iso_text)
_SPECIFIC: dict[Mode, dict[str, SourceType]] = {
    "adaptive": _PRECISE
    | _of_mode(_DATES, time_type(named("int64", f"{TIME}MicroTime"), 1, "time_from_micros"), _MICROS, _MILLIS),
    "connect": _PRECISE
    | _of_mode(
        date_type(named("int32", f"{CONNECT}Date"), "date_from_days"),
        time_type(named("int32", f"{CONNECT}Time"), 1000, "time_from_millis"),
        *[timestamp_type(named("int64", f"{CONNECT}Timestamp"), 1000, "timestamp_from_millis")] * 2,
    ),
    "iso": _PRECISE
    | _of_mode(
        date_type(named("string", f"{TIME}IsoDate"), "date", lambda v: f"{v.isoformat()}Z"),
        time_type(named("string", f"{TIME}IsoTime"), 1, "time", lambda v: f"{v}Z"),
        _ISO,
        _ISO,
    ),
    "nanos": {
        "numeric(10,2)": written_decimal_type(_NUMERIC, 10, 2),
        "numeric": written_decimal_type(_FREE, 0, 0),
        "numeric(40,3)": written_decimal_type(_LONG, 40, 3),
        "hstore": SourceType(
            named("string", f"{DATA}Json"),
            ({"a b": "c", "d": None}, {}),
            json.dumps,
            json.loads,
            is_large=True,
            has_defaults=False,
        ),
        "interval": SourceType(
            named("int64", f"{TIME}NanoDuration"), (0, 86_400_000_000), lambda v: v * 1000, has_defaults=False
        ),
    }
    | _of_mode(_DATES, time_type(named("int64", f"{TIME}NanoTime"), 0, "time_from_nanos"), _NANOS, _NANOS),
}


@cache
def source_types(mode: Mode = "adaptive") -> Mapping[str, SourceType]:
    """Returns the types by name (`format_type` of Postgres; a few are MySQL's) as a connector in `mode` writes them."""
    return _ALWAYS | _SPECIFIC[mode]
