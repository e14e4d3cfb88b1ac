"""Logical types of columns, independent of a connector's encoding and of Delta's storage.

`decimal_text` is an exact decimal of any length (digits, at most one point, no exponent). `time` is ISO text, because
24:00:00 and MySQL's -838:59:59 are valid. `interval_micros` is a number of microseconds. `unknown` is the type of a
column with only nulls. `int53` is an int64 that a 64-bit float represents exactly (`inferred_types`). `timestamp` and
`timestamp_tz` have microseconds; infinite ones are the instants `INFINITY_MICROS` and `MINUS_INFINITY_MICROS`
(org.postgresql.PGStatement), which keeps their order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from pyspark.sql import types as spark

from ingest.errors import ConfigError
from ingest.values.type_expression import TypeExpression, parse_type_expression

INFINITY_MICROS = 9223372036825200000
MINUS_INFINITY_MICROS = -9223372036832400000
MAX_DIGITS = 38  # of a decimal, in Spark and in Delta


class OutOfRange(StrEnum):
    """Rules for dates and timestamps outside of the years 1 to 9999, infinite ones included. Some readers fail on
    these: Python can't represent them."""

    CLAMP = "clamp"
    SET_NULL = "set_null"
    QUARANTINE = "quarantine"
    KEEP = "keep"
    CLAMP_INFINITE = "clamp_infinite"
    """The rule for key columns: clamps infinite times only, since two finite ones must not become equal."""


class Kind(StrEnum):
    """The kinds of logical types, by the names that `str(type)` writes."""

    BOOLEAN = "boolean"
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT53 = "int53"
    INT64 = "int64"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    DECIMAL = "decimal"
    DECIMAL_TEXT = "decimal_text"
    STRING = "string"
    BYTES = "bytes"
    BITS = "bits"
    DATE = "date"
    TIME = "time"
    TIME_TZ = "time_tz"
    TIMESTAMP = "timestamp"
    TIMESTAMP_TZ = "timestamp_tz"
    INTERVAL_MICROS = "interval_micros"
    INTERVAL_ISO = "interval_iso"
    UUID = "uuid"
    JSON = "json"
    ENUM = "enum"
    XML = "xml"
    LTREE = "ltree"
    ARRAY = "array"
    MAP = "map"
    STRUCT = "struct"
    UNKNOWN = "unknown"


_SHAPES = {Kind.ARRAY: 1, Kind.MAP: 2}
_ARGUMENTS = {Kind.DECIMAL: 2, Kind.BITS: 1}


@dataclass(frozen=True, slots=True)
class LogicalType:
    """A logical type with its parameters.

    `precision`: a decimal's number of digits, or a bit string's length. `elements`: an array's element, a map's key and
    value, or a struct's fields. `names`: those of the fields. Raises ConfigError for invalid parameters.
    """

    kind: Kind
    precision: int = 0
    scale: int = 0
    elements: tuple[LogicalType, ...] = ()
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        wanted = len(self.names) if self.kind is Kind.STRUCT else _SHAPES.get(self.kind, 0)
        decimal_ok = self.kind is not Kind.DECIMAL or (
            1 <= self.precision <= MAX_DIGITS and 0 <= self.scale <= self.precision
        )
        if len(self.elements) != wanted or not decimal_ok or (self.kind is Kind.BITS and self.precision < 1):
            raise ConfigError(
                f"the type {self} is invalid",
                "give decimal 1 to 38 digits and a scale within them, bits a length, array one, map two",
            )

    def __str__(self) -> str:
        return str(self._expression())

    def _expression(self) -> TypeExpression:
        arguments = (self.precision, self.scale)[: _ARGUMENTS.get(self.kind, 0)]
        elements = tuple(element._expression() for element in self.elements)
        return TypeExpression(self.kind.value, tuple(map(str, arguments)), elements, self.names)


def parse(text: str) -> LogicalType:
    """Returns the type of `text`, written by `str(type)`. Raises ConfigError for any other text."""
    return logical(parse_type_expression(text))


def logical(expression: TypeExpression) -> LogicalType:
    """Returns the type of an expression. Raises ConfigError for an unknown name or wrong arguments."""
    known = expression.word in Kind.__members__.values()
    wanted = _ARGUMENTS.get(Kind(expression.word), 0) if known else -1
    if len(expression.arguments) != wanted or not all(text.isdecimal() for text in expression.arguments):
        raise ConfigError(f"{str(expression)!r} is not a logical type", f"use one of {', '.join(Kind)}")
    elements = tuple(logical(element) for element in expression.elements)
    precision, scale = [*map(int, expression.arguments), 0, 0][:2]
    return LogicalType(Kind(expression.word), precision, scale, elements, expression.names)


def array_of(element: LogicalType) -> LogicalType:
    """Returns the type of arrays of `element`."""
    return LogicalType(Kind.ARRAY, elements=(element,))


def map_of(key: LogicalType, value: LogicalType) -> LogicalType:
    """Returns the type of maps of `key` to `value`."""
    return LogicalType(Kind.MAP, elements=(key, value))


def struct_of(fields: dict[str, LogicalType]) -> LogicalType:
    """Returns the type of structs of `fields`, name → type, in this order."""
    return LogicalType(Kind.STRUCT, elements=tuple(fields.values()), names=tuple(fields))


def has_same_json(one: LogicalType, other: LogicalType) -> bool:
    """Returns True if each value of both types has one JSON (`render.LOSSLESS_JSON`)."""
    return (
        spark_type(one) == spark_type(other)
        or (one.kind in INTEGERS and other.kind in INTEGERS)
        or (one.kind is other.kind is Kind.DECIMAL and one.scale == other.scale)
    )


def with_scale(scale: int) -> LogicalType:
    """Returns the `decimal_text` of a numeric with a scale and too many digits for Delta. Only definitions of tables
    have it; columns are stored by the plain type."""
    return LogicalType(Kind.DECIMAL_TEXT, MAX_DIGITS + 1, scale)


def decimal_of(precision: int, scale: int) -> LogicalType:
    """Returns decimal(precision, scale), or `decimal_text` for more than Delta's 38 digits."""
    if precision > MAX_DIGITS:
        return LogicalType(Kind.DECIMAL_TEXT)
    return LogicalType(Kind.DECIMAL, precision, scale)


_SPARK: dict[Kind, Callable[[], spark.DataType]] = {
    Kind.BOOLEAN: spark.BooleanType,
    Kind.INT8: spark.ByteType,
    Kind.INT16: spark.ShortType,
    Kind.INT32: spark.IntegerType,
    Kind.INT53: spark.LongType,
    Kind.INT64: spark.LongType,
    Kind.FLOAT32: spark.FloatType,
    Kind.FLOAT64: spark.DoubleType,
    Kind.BYTES: spark.BinaryType,
    Kind.DATE: spark.DateType,
    Kind.TIMESTAMP: spark.TimestampNTZType,
    Kind.TIMESTAMP_TZ: spark.TimestampType,
    Kind.INTERVAL_MICROS: spark.LongType,
}


def spark_type(logical_type: LogicalType) -> spark.DataType:
    """Returns the type by which silver stores a logical type; text if Delta has no such type."""
    elements = [spark_type(element) for element in logical_type.elements]
    match logical_type.kind:
        case Kind.DECIMAL:
            return spark.DecimalType(logical_type.precision, logical_type.scale)
        case Kind.BITS:
            return _bits(logical_type.precision)
        case Kind.ARRAY:
            return spark.ArrayType(elements[0])
        case Kind.MAP:
            return spark.MapType(elements[0], elements[1])
        case Kind.STRUCT:
            fields = zip(logical_type.names, elements, strict=True)
            return spark.StructType([spark.StructField(name, element) for name, element in fields])
        case kind:
            return _SPARK.get(kind, spark.StringType)()


def _bits(length: int) -> spark.DataType:
    if length < 64:
        return spark.LongType()
    return spark.DecimalType(20 if length == 64 else MAX_DIGITS, 0)


INTEGERS = (Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT53, Kind.INT64)
"""Integer kinds, from narrow to wide."""
FLOATS = (Kind.FLOAT32, Kind.FLOAT64)
_DECIMALS = (Kind.DECIMAL, Kind.DECIMAL_TEXT)
INFERRED_NUMBERS = (Kind.INT53, Kind.INT64, Kind.FLOAT64, Kind.DECIMAL_TEXT)
"""Kinds of types that are inferred from numbers in JSON."""
TEXTS = frozenset({Kind.STRING, Kind.ENUM, Kind.JSON, Kind.XML, Kind.LTREE, Kind.UUID})
"""Kinds whose values are text at the source too."""


_SHOWN = {
    Kind.INTERVAL_ISO: {Kind.INTERVAL_MICROS},
    Kind.DECIMAL: {Kind.DECIMAL_TEXT, Kind.FLOAT64, Kind.STRING},
    Kind.DECIMAL_TEXT: {Kind.DECIMAL, Kind.FLOAT64, Kind.STRING},
    Kind.BYTES: {Kind.STRING},
}
"""The kind of values by the recipe's settings → the kinds that others of a connector's settings give."""


def may_show(shown: LogicalType, by_recipe: LogicalType) -> bool:
    """Returns True if events of a connector with other settings than the recipe's show the second type as the first."""
    if by_recipe.kind is shown.kind is Kind.ARRAY:
        return may_show(shown.elements[0], by_recipe.elements[0])
    return shown.kind in _SHOWN.get(by_recipe.kind, ())


def widest(a: LogicalType, b: LogicalType) -> LogicalType | None:
    """Returns the narrowest type that holds every value of both without loss; None if there is none.

    Commutative, associative where not None, and idempotent. With a decimal an integer counts as decimal(10,0), int64 as
    decimal(20,0): these are the steps of Delta's type widening, so only a change to `decimal_text` rewrites the table.
    """
    if a == b or Kind.UNKNOWN in (a.kind, b.kind):
        return b if a.kind is Kind.UNKNOWN else a
    return _widest_of_kind(a, b) if a.kind is b.kind else _widest_across(a, b)


def _widest_across(a: LogicalType, b: LogicalType) -> LogicalType | None:
    kinds = {a.kind, b.kind}
    if kinds <= set(INTEGERS):
        return max(a, b, key=lambda one: INTEGERS.index(one.kind))
    if kinds <= {*INTEGERS, *FLOATS} and Kind.INT64 not in kinds:
        return LogicalType(Kind.FLOAT64)
    if kinds <= {*INTEGERS, *_DECIMALS}:
        return _widest_decimal(a, b)
    if kinds <= TEXTS:
        return LogicalType(Kind.STRING)
    return LogicalType(Kind.TIMESTAMP) if kinds == {Kind.DATE, Kind.TIMESTAMP} else None


def _widest_of_kind(a: LogicalType, b: LogicalType) -> LogicalType | None:
    match a.kind:
        case Kind.DECIMAL:
            return _widest_decimal(a, b)
        case Kind.BITS:
            return max(a, b, key=lambda one: one.precision)
        case Kind.STRUCT:
            return _widest_struct(a, b)
        case _:
            pairs = [widest(*pair) for pair in zip(a.elements, b.elements, strict=True)]
            elements = tuple(one for one in pairs if one is not None)
            return LogicalType(a.kind, elements=elements) if len(elements) == len(pairs) else None


def _widest_decimal(a: LogicalType, b: LogicalType) -> LogicalType:
    if Kind.DECIMAL_TEXT in (a.kind, b.kind):
        return LogicalType(Kind.DECIMAL_TEXT)
    (left, left_scale), (right, right_scale) = _digits(a), _digits(b)
    scale = max(left_scale, right_scale)
    return decimal_of(max(left, right) + scale, scale)


def _digits(one: LogicalType) -> tuple[int, int]:
    """Returns the numbers of digits before and after the point."""
    if one.kind is Kind.DECIMAL:
        return one.precision - one.scale, one.scale
    return (20, 0) if one.kind in (Kind.INT53, Kind.INT64) else (10, 0)


def _widest_struct(a: LogicalType, b: LogicalType) -> LogicalType | None:
    fields = dict(zip(a.names, a.elements, strict=True))
    for name, element in zip(b.names, b.elements, strict=True):
        wide = widest(fields[name], element) if name in fields else element
        if wide is None:
            return None
        fields[name] = wide
    return struct_of(fields)
