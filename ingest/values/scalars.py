"""Decodes scalar values, as Spark SQL expressions: one function per encoding, for `decode`.

Each takes a value read as `wire_spark_type(wire)`, its wire type and its target type, and returns a
`spark_type(target)`; null if the value can't be decoded.
"""

from __future__ import annotations

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from ingest.values import decimals, temporal
from ingest.values.base64_text import bytes_of
from ingest.values.columns import WireType
from ingest.values.json_text import json_text
from ingest.values.types import FLOATS, Kind, LogicalType, spark_type

_EXACT_DIGITS = {Kind.FLOAT32: 6, Kind.FLOAT64: 15}
"""The number of decimal digits that a float always keeps."""


def boolean(value: SparkColumn, wire: WireType, _: LogicalType) -> SparkColumn:
    """Returns the boolean of true or false, or of a number."""
    if not wire.checked:
        return value
    # Compare texts first: a `try_cast` that fails throws an exception per row.
    written = F.when(value == "true", F.lit(True)).when(value == "false", F.lit(False))
    return written.otherwise(F.coalesce(value.try_cast("bigint") != 0, value.try_cast("boolean")))


def number(value: SparkColumn, wire: WireType, target: LogicalType) -> SparkColumn:
    """Returns a number by the width of its wire type, cast to the target."""
    if wire.checked and wire.number in FLOATS:
        return _checked_float(value, wire).cast(spark_type(target))
    narrow = value.try_cast(spark_type(LogicalType(wire.number))) if wire.checked else value
    return narrow.try_cast(spark_type(target))


def _checked_float(variant: SparkColumn, wire: WireType) -> SparkColumn:
    """Returns the float of a number; null if it has more digits than the float keeps."""
    text = decimals.text_of(variant)
    floating = text.try_cast(spark_type(LogicalType(wire.number)))
    return F.when(F.length(text) <= _EXACT_DIGITS[wire.number], floating).otherwise(_if_exact(variant, text, floating))


def _if_exact(variant: SparkColumn, text: SparkColumn, floating: SparkColumn) -> SparkColumn:
    variant_type = F.schema_of_variant(variant)
    is_exact = _significant(floating.cast("string")) == _significant(text)
    is_exact_as_double = _significant(floating.cast("double").cast("string")) == _significant(text)
    is_decimal = (variant_type == "BIGINT") | variant_type.startswith("DECIMAL")
    is_unchecked = (variant_type == "DOUBLE") | (variant_type == "STRING")
    return F.when(is_unchecked | (is_decimal & (is_exact | is_exact_as_double)), floating)


def _significant(number: SparkColumn) -> SparkColumn:
    digits = F.translate(F.split_part(number, F.lit("E"), F.lit(1)), "-.", "")
    return F.trim(digits, F.lit("0"))


def bits(value: SparkColumn, wire: WireType, target: LogicalType) -> SparkColumn:
    """Returns the unsigned number of a bit string, which is base64 of bytes, the least significant first."""
    little_endian = F.hex(bytes_of(value))
    swapped = F.regexp_replace(F.reverse(little_endian), "(.)(.)", "$2$1")
    digits = F.ltrim(swapped, F.lit("0"))
    low = F.conv(F.lpad(F.right(digits, F.lit(16)), 16, "0"), 16, 10).cast("decimal(20,0)")
    if target.precision <= 64:
        return F.when(F.length(digits) <= 16, low.try_cast(spark_type(target)))
    padded = F.lpad(digits, 32, "0")
    high = F.conv(F.left(padded, F.lit(16)), 16, 10).cast("decimal(20,0)")
    total = F.try_add(F.try_multiply(high, F.lit(str(2**64)).cast("decimal(20,0)")), low)
    return F.when(F.length(digits) <= 32, total.try_cast(spark_type(target)))


def _temporal_number(value: SparkColumn, wire: WireType) -> SparkColumn:
    return value.try_cast(spark_type(LogicalType(wire.number))) if wire.checked else value


def days(value: SparkColumn, wire: WireType, target: LogicalType) -> SparkColumn:
    """Returns the date of a number of days since 1970-01-01."""
    return temporal.date_from_days(_temporal_number(value, wire), wire.out_of_range).try_cast(spark_type(target))


def date_text(value: SparkColumn, wire: WireType, target: LogicalType) -> SparkColumn:
    """Returns the date of an ISO date."""
    return temporal.date_from_text(value, wire.out_of_range).try_cast(spark_type(target))


def date_any(value: SparkColumn, wire: WireType, target: LogicalType) -> SparkColumn:
    """Returns the date of a number of days, or of an ISO date."""
    return temporal.date_from_any(value, wire.out_of_range).try_cast(spark_type(target))


def epoch(value: SparkColumn, wire: WireType, target: LogicalType) -> SparkColumn:
    """Returns the timestamp of a number of units since 1970-01-01."""
    units = _temporal_number(value, wire)
    zoned = target.kind is Kind.TIMESTAMP_TZ
    return temporal.instant_from_units(units, wire.digits, wire.out_of_range, zoned).cast(spark_type(target))


def time_of_day(value: SparkColumn, wire: WireType, _: LogicalType) -> SparkColumn:
    """Returns the ISO time of a number of units since midnight."""
    return temporal.time_from_units(_temporal_number(value, wire), wire.digits)


def duration(value: SparkColumn, wire: WireType, _: LogicalType) -> SparkColumn:
    """Returns a number of microseconds."""
    units = _temporal_number(value, wire)
    return temporal.micros_from_nanos(units) if wire.digits == 9 else units


def json_value(value: SparkColumn, _: WireType, target: LogicalType) -> SparkColumn:
    """Returns any JSON value as text: for a string column the string itself, for `decimal_text` only a number."""
    text = json_text(value)
    match target.kind:
        case Kind.DECIMAL_TEXT:
            return F.when(text.rlike("^-?[0-9]"), text)
        case Kind.STRING:
            return F.when(F.schema_of_variant(value) == "STRING", decimals.text_of(value)).otherwise(text)
        case _:
            return text
