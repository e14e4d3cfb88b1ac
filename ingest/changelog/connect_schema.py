"""Derives the columns of a table from a Kafka Connect schema, or from a user's declaration.

Source of the semantic names: Debezium's connector reference, "Data type mappings" (all of `time.precision.mode` and
`decimal.handling.mode`), and org.apache.kafka.connect.data. A name that is not listed is read by its physical type.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ingest.errors import ChangelogUnusable, ConfigError
from ingest.values.columns import Column, Encoding, WireType
from ingest.values.type_expression import TypeExpression, parse_type_expression
from ingest.values.types import (
    MAX_DIGITS,
    Kind,
    LogicalType,
    OutOfRange,
    array_of,
    decimal_of,
    map_of,
    struct_of,
)

Typed = tuple[WireType, LogicalType]

_UNBOUNDED = 2**31 - 1  # Postgres' length of a bit varying that is declared without one
_UNITS = {"ms", "us", "ns", "iso", "approximate"}  # arguments that don't change how a type is read
_INTERVALS = {"iso": "interval_iso", "us": "interval_micros"}

_NUMBERS = {
    "int8": Kind.INT8,
    "int16": Kind.INT16,
    "int32": Kind.INT32,
    "int64": Kind.INT64,
    "float": Kind.FLOAT32,
    "float32": Kind.FLOAT32,
    "double": Kind.FLOAT64,
    "float64": Kind.FLOAT64,
}
_SCALARS = {
    "boolean": (Encoding.BOOLEAN, Kind.BOOLEAN),
    "string": (Encoding.TEXT, Kind.STRING),
    "bytes": (Encoding.BASE64, Kind.BYTES),
}
_TIME = "io.debezium.time."
_DATA = "io.debezium.data."
_CONNECT = "org.apache.kafka.connect.data."
_SOURCE = "__debezium.source.column."
_SOURCE_TYPE = f"{_SOURCE}type"
_NUMERIC, _NUMERIC_ARRAYS = ("NUMERIC", "DECIMAL"), ("_NUMERIC",)
_SEMANTIC = {
    ("int32", f"{_TIME}Date"): (Encoding.EPOCH_DAYS, 0, Kind.DATE),
    ("int32", f"{_CONNECT}Date"): (Encoding.EPOCH_DAYS, 0, Kind.DATE),
    ("string", f"{_TIME}IsoDate"): (Encoding.DATE_TEXT, 0, Kind.DATE),
    ("int32", f"{_TIME}Time"): (Encoding.TIME_OF_DAY, 3, Kind.TIME),
    ("int32", f"{_CONNECT}Time"): (Encoding.TIME_OF_DAY, 3, Kind.TIME),
    ("int64", f"{_TIME}MicroTime"): (Encoding.TIME_OF_DAY, 6, Kind.TIME),
    ("int64", f"{_TIME}NanoTime"): (Encoding.TIME_OF_DAY, 9, Kind.TIME),
    ("string", f"{_TIME}IsoTime"): (Encoding.TIME_TEXT, 0, Kind.TIME),
    ("string", f"{_TIME}ZonedTime"): (Encoding.TIME_TZ_TEXT, 0, Kind.TIME_TZ),
    ("int64", f"{_TIME}Timestamp"): (Encoding.EPOCH, 3, Kind.TIMESTAMP),
    ("int64", f"{_CONNECT}Timestamp"): (Encoding.EPOCH, 3, Kind.TIMESTAMP),
    ("int64", f"{_TIME}MicroTimestamp"): (Encoding.EPOCH, 6, Kind.TIMESTAMP),
    ("int64", f"{_TIME}NanoTimestamp"): (Encoding.EPOCH, 9, Kind.TIMESTAMP),
    ("string", f"{_TIME}IsoTimestamp"): (Encoding.TIMESTAMP_TEXT, 0, Kind.TIMESTAMP),
    ("string", f"{_TIME}ZonedTimestamp"): (Encoding.TIMESTAMP_TZ_TEXT, 0, Kind.TIMESTAMP_TZ),
    ("int32", f"{_TIME}Year"): (Encoding.NUMBER, 0, Kind.INT32),
    ("int64", f"{_TIME}MicroDuration"): (Encoding.DURATION, 6, Kind.INTERVAL_MICROS),
    ("int64", f"{_TIME}NanoDuration"): (Encoding.DURATION, 9, Kind.INTERVAL_MICROS),
    ("string", f"{_TIME}Interval"): (Encoding.TEXT, 0, Kind.INTERVAL_ISO),
    ("string", f"{_DATA}Json"): (Encoding.TEXT, 0, Kind.JSON),
    ("string", f"{_DATA}Xml"): (Encoding.TEXT, 0, Kind.XML),
    ("string", f"{_DATA}Uuid"): (Encoding.TEXT, 0, Kind.UUID),
    ("string", f"{_DATA}Ltree"): (Encoding.TEXT, 0, Kind.LTREE),
    ("string", f"{_DATA}Enum"): (Encoding.TEXT, 0, Kind.ENUM),
    ("string", f"{_DATA}EnumSet"): (Encoding.TEXT, 0, Kind.STRING),
    ("struct", f"{_DATA}VariableScaleDecimal"): (Encoding.DECIMAL_VARIABLE, 0, Kind.DECIMAL_TEXT),
}
_DECLARED = {
    "boolean": (Encoding.BOOLEAN, 0, Kind.BOOLEAN),
    "boolean_from_int": (Encoding.BOOLEAN, 0, Kind.BOOLEAN),
    "bytes": (Encoding.BASE64, 0, Kind.BYTES),
    "date": (Encoding.DATE_ANY, 0, Kind.DATE),
    "date_from_days": (Encoding.EPOCH_DAYS, 0, Kind.DATE),
    "time": (Encoding.TIME_TEXT, 0, Kind.TIME),
    "time_from_millis": (Encoding.TIME_OF_DAY, 3, Kind.TIME),
    "time_from_micros": (Encoding.TIME_OF_DAY, 6, Kind.TIME),
    "time_from_nanos": (Encoding.TIME_OF_DAY, 9, Kind.TIME),
    "time_tz": (Encoding.TIME_TZ_TEXT, 0, Kind.TIME_TZ),
    "timestamp": (Encoding.TIMESTAMP_TEXT, 0, Kind.TIMESTAMP),
    "timestamp_from_millis": (Encoding.EPOCH, 3, Kind.TIMESTAMP),
    "timestamp_from_micros": (Encoding.EPOCH, 6, Kind.TIMESTAMP),
    "timestamp_from_nanos": (Encoding.EPOCH, 9, Kind.TIMESTAMP),
    "timestamp_tz": (Encoding.TIMESTAMP_TZ_TEXT, 0, Kind.TIMESTAMP_TZ),
    "timestamp_tz_from_millis": (Encoding.EPOCH, 3, Kind.TIMESTAMP_TZ),
    "timestamp_tz_from_micros": (Encoding.EPOCH, 6, Kind.TIMESTAMP_TZ),
    "interval_micros": (Encoding.DURATION, 6, Kind.INTERVAL_MICROS),
    "interval_iso": (Encoding.TEXT, 0, Kind.INTERVAL_ISO),
    "unknown": (Encoding.NOTHING, 0, Kind.UNKNOWN),
    **{
        kind.value: (Encoding.TEXT, 0, kind)
        for kind in (Kind.STRING, Kind.UUID, Kind.JSON, Kind.ENUM, Kind.XML, Kind.LTREE)
    },
    **{kind.value: (Encoding.NUMBER, 0, kind) for kind in _NUMBERS.values()},
}

DECLARABLE = (*_DECLARED, "array", "bits", "decimal", "decimal_from_base64", "decimal_text", "map", "struct")
"""The type names that a user may declare for a column."""


def columns_of(struct_schema: Mapping[str, Any]) -> tuple[Column, ...]:
    """Returns the columns of a row from the Connect schema of its struct (that of `after`), in its order.

    Raises ChangelogUnusable if the schema is not a struct's, or has a physical type unknown to Connect.
    """
    if struct_schema.get("type") != "struct":
        raise ChangelogUnusable(
            f"the schema of a row is of type {struct_schema.get('type')!r}, not struct",
            "check that the topic carries Debezium events, or declare its columns",
        )
    return tuple(_column(field) for field in struct_schema.get("fields", ()))


def key_columns_of(schema: str, times: OutOfRange) -> tuple[Column, ...]:
    """Returns the columns of a record's key from the text of its Connect schema; empty if the key is no struct, or of a
    type unknown to Connect. `times`: what becomes of times out of range."""
    try:
        columns = columns_of(json.loads(schema))
    except (ChangelogUnusable, ValueError, AttributeError, KeyError):
        return ()
    return tuple(replace(column, wire=column.wire.with_out_of_range(times)) for column in columns)


def declared_column(name: str, logical_text: str) -> Column:
    """Returns the column of an event without a schema, as the user declares it.

    `logical_text`: a logical type, or one with an encoding: `boolean_from_int`, `date_from_days`,
    `time_from_millis|micros|nanos`, `timestamp_from_millis|micros|nanos`, `timestamp_tz_from_millis|micros`,
    `decimal_from_base64(p,s)`. Raises ConfigError for anything else.
    """
    wire, logical_type = _declared(parse_type_expression(logical_text))
    return Column(name, wire, logical_type)


def _column(field: Mapping[str, Any]) -> Column:
    wire, logical_type = _typed(field)
    default = json.dumps(field["default"], ensure_ascii=False) if "default" in field else None
    return Column(
        name=str(field["field"]),
        wire=wire,
        type=logical_type,
        optional=bool(field.get("optional", False)),
        default=default,
        has_default="default" in field,
    )


def _typed(schema: Mapping[str, Any]) -> Typed:
    physical = str(schema.get("type"))
    name = schema.get("name")
    if found := _SEMANTIC.get((physical, str(name))):
        encoding, digits, kind = found
        return WireType(encoding, _NUMBERS.get(physical, Kind.INT64), digits), LogicalType(kind)
    parameters = schema.get("parameters") or {}
    match physical, name:
        case "bytes", "org.apache.kafka.connect.data.Decimal":
            return _decimal(int(parameters.get("scale", 0)), parameters.get("connect.decimal.precision"))
        case "bytes", "io.debezium.data.Bits":
            return _bits(int(parameters.get("length") or _UNBOUNDED))
        case "string", None if parameters.get(_SOURCE_TYPE) in _NUMERIC:
            return _written_decimal(parameters)
        case "array", None if parameters.get(_SOURCE_TYPE) in _NUMERIC_ARRAYS and _is_utf8_text(schema["items"]):
            return _array(_written_decimal(parameters))
        case "array" | "map" | "struct", _:
            return _nested(physical, schema)
        case _:
            return _scalar(physical)


def _nested(physical: str, schema: Mapping[str, Any]) -> Typed:
    if physical == "array":
        return _array(_typed(schema["items"]))
    if physical == "map":
        return _map(_typed(schema["keys"]), _typed(schema["values"]))
    return _struct({str(field["field"]): _typed(field) for field in schema["fields"]})


def _scalar(physical: str) -> Typed:
    if physical in _NUMBERS:
        return WireType(Encoding.NUMBER, _NUMBERS[physical]), LogicalType(_NUMBERS[physical])
    if physical not in _SCALARS:
        raise ChangelogUnusable(
            f"{physical!r} is no type of a Kafka Connect schema",
            "check that the topic is written by Connect's JsonConverter, or declare its columns",
        )
    encoding, kind = _SCALARS[physical]
    return WireType(encoding), LogicalType(kind)


def _decimal(scale: int, precision: object) -> Typed:
    """Returns the type of Connect's Decimal. Debezium omits the precision for money and BIGINT UNSIGNED; Oracle's scale
    may be negative."""
    wire = WireType(Encoding.DECIMAL_UNSCALED, digits=scale)
    stored_scale = max(scale, 0)
    if precision is None:
        return wire, decimal_of(max(MAX_DIGITS, stored_scale), stored_scale)
    return wire, decimal_of(max(int(str(precision)) + stored_scale - scale, stored_scale, 1), stored_scale)


def _written_decimal(parameters: Mapping[str, str]) -> Typed:
    """Returns the type of a decimal that is written as digits (`decimal.handling.mode=string`).

    `parameters`: those with the column's type at the source (`datatype.propagate.source.type`). Without a length, or
    with more than 38 digits, the result is `decimal_text`.
    """
    precision = int(parameters.get(f"{_SOURCE}length", 0)) or MAX_DIGITS + 1
    scale = int(parameters.get(f"{_SOURCE}scale", 0))
    logical_type = decimal_of(max(precision, scale), scale)
    digits = scale if f"{_SOURCE}length" in parameters else MAX_DIGITS
    return WireType(Encoding.DECIMAL_PLAIN, digits=digits), logical_type


def _is_utf8_text(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "string" and schema.get("name") is None


def _bits(length: int) -> Typed:
    return WireType(Encoding.BITS), LogicalType(Kind.BITS, length)


def _array(element: Typed) -> Typed:
    return WireType(Encoding.ARRAY, elements=(element[0],)), array_of(element[1])


def _map(key: Typed, value: Typed) -> Typed:
    """Returns the type of a map, which Connect's JsonConverter writes as an object only if its keys are strings."""
    encoding = Encoding.MAP if key[0].encoding is Encoding.TEXT else Encoding.MAP_ENTRIES
    return WireType(encoding, elements=(key[0], value[0])), map_of(key[1], value[1])


def _struct(fields: Mapping[str, Typed]) -> Typed:
    wires = tuple(wire for wire, _ in fields.values())
    wire = WireType(Encoding.STRUCT, elements=wires, names=tuple(fields))
    return wire, struct_of({name: logical_type for name, (_, logical_type) in fields.items()})


def _declared(expression: TypeExpression) -> Typed:
    elements = [_declared(element) for element in expression.elements]
    found: Typed | None = None
    match expression.word, expression.arguments, elements:
        case "array", (), [element]:
            found = _array(element)
        case "map", (), [key, value]:
            found = _map(key, value)
        case "struct", (), _:
            found = _struct(dict(zip(expression.names, elements, strict=True)))
        case word, arguments, []:
            found = _declared_scalar(word, arguments)
    if found is None:
        raise ConfigError(
            f"{str(expression)!r} can't be declared as the type of a column",
            "use a logical type such as int64 or decimal(10,3), or one with an encoding, "
            f"of {', '.join(word for word in _DECLARED if '_from_' in word)}",
        )
    return found


def _declared_scalar(word: str, arguments: tuple[str, ...]) -> Typed | None:
    if word == "interval" and arguments:
        word = _INTERVALS.get(arguments[0], word)
    match word, arguments:
        case "bits", (length,) if length.isdecimal():
            return _bits(int(length))
        case "bits", ():
            return _bits(_UNBOUNDED)
        case Kind.INT53, ():  # The type of a stored column only: it is not declarable.
            return WireType(Encoding.NUMBER, Kind.INT64, checked=True), LogicalType(Kind.INT53)
        case "decimal" | "decimal_text", () | ("variable",):
            wire = WireType(Encoding.DECIMAL_PLAIN, digits=MAX_DIGITS)
            return wire, LogicalType(Kind.DECIMAL_TEXT)
        case "decimal" | "decimal_from_base64", (precision, scale) if scale.isdecimal():
            digits = int(precision) if precision.isdecimal() else MAX_DIGITS
            encoded = word == "decimal_from_base64"
            encoding = Encoding.DECIMAL_UNSCALED if encoded else Encoding.DECIMAL_PLAIN
            return WireType(encoding, digits=int(scale)), decimal_of(digits, int(scale))
        case _ if word in _DECLARED and set(arguments) <= _UNITS:
            encoding, digits, kind = _DECLARED[word]
            number = kind if encoding is Encoding.NUMBER else Kind.INT64
            return WireType(encoding, number, digits, checked=True), LogicalType(kind)
    return None
