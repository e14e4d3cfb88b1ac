"""Returns values as Postgres writes them as text (`x::text`), as Spark SQL expressions. Null stands for a value whose
text only the source knows."""

from __future__ import annotations

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from ingest.values.casts_of_times import UTC_NAMES, is_exact
from ingest.values.types import FLOATS, INTEGERS, TEXTS, Kind, LogicalType

PLAIN = (*INTEGERS, *TEXTS, Kind.BOOLEAN, Kind.DECIMAL, Kind.DECIMAL_TEXT, Kind.TIME, Kind.BYTES)
"""Kinds of which each value has a text that is known."""
_DIGITS = {Kind.FLOAT32: 6, Kind.FLOAT64: 15}
"""The number of decimal digits that a float always keeps: with as many, its shortest text is the only one."""
_SMALLEST = {Kind.FLOAT32: 1.17549435e-38, Kind.FLOAT64: 2.2250738585072014e-308}
_NEEDS_QUOTES = r'^$|[{}",\\\s]|^(?i:null)$'
_NO_ELEMENTS = (Kind.ARRAY, Kind.MAP, Kind.STRUCT)


def has_text(type_: LogicalType) -> bool:
    """Returns True if `text` knows the text of some value of the type."""
    if type_.kind is Kind.ARRAY:
        return type_.elements[0].kind not in _NO_ELEMENTS and has_text(type_.elements[0])
    return type_.kind in (*PLAIN, *FLOATS, Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_TZ)


def text(value: SparkColumn, type_: LogicalType, zone: str = "UTC") -> SparkColumn:
    """Returns the text of a value of a type that `has_text`. `zone`: the session's time zone at the source."""
    match type_.kind:
        case Kind.FLOAT32 | Kind.FLOAT64:
            return _float_text(value, type_.kind)
        case Kind.BYTES:
            return F.concat(F.lit("\\x"), F.lower(F.hex(value)))
        case Kind.DATE | Kind.TIMESTAMP:
            return F.when(is_exact(value, type_.kind), value.cast("string"))
        case Kind.TIMESTAMP_TZ:
            is_known = is_exact(value, type_.kind) & F.lit(zone in UTC_NAMES)
            return F.when(is_known, F.concat(value.cast("string"), F.lit("+00")))
        case Kind.ARRAY:
            return _array_text(value, type_.elements[0], zone)
        case _:
            return value.cast("string")


def _float_text(value: SparkColumn, kind: Kind) -> SparkColumn:
    """Returns the shortest digits that mean the float: with an exponent below 1e-4 and from 1e15 (1e6) on."""
    digits, written = _DIGITS[kind], value.cast("string")
    mantissa, exponent = (F.split_part(F.ltrim(written, F.lit("-")), F.lit("E"), F.lit(n)) for n in (1, 2))
    significant = F.trim(F.replace(mantissa, F.lit("."), F.lit("")), F.lit("0"))
    number = F.abs(written.try_cast("decimal(38,19)"))
    sign = F.when(written.startswith("-"), F.lit("-")).otherwise(F.lit(""))
    plain = F.concat(sign, F.regexp_replace(number.cast("string"), r"\.?0+$", ""))
    power = F.ltrim(exponent, F.lit("-"))
    # Java writes an exponent from 1e7 on.
    to_power = (
        F.when(exponent == "", F.lit("e+06"))
        .when(exponent.startswith("-"), F.concat(F.lit("e-"), _two_digits(power)))
        .otherwise(F.concat(F.lit("e+"), _two_digits(power)))
    )
    pointed = F.regexp_replace(significant, "^(.)(.+)$", "$1.$2")
    return (
        F.when(written.isin("NaN", "Infinity", "-Infinity"), written)
        .when(value == 0, F.concat(sign, F.lit("0")))
        .when((F.length(significant) > digits) | ~has_all_digits(value, kind), F.lit(None).cast("string"))
        .when((number >= F.lit("0.0001").cast("decimal(38,19)")) & (number < 10**digits), plain)
        .otherwise(F.concat(sign, pointed, to_power))
    )


def has_all_digits(value: SparkColumn, kind: Kind) -> SparkColumn:
    """Returns true for a float that isn't so near to zero that it has fewer digits than others."""
    return (F.abs(value) >= _SMALLEST[kind]) | (value == 0)


def _two_digits(text: SparkColumn) -> SparkColumn:
    return F.when(F.length(text) == 1, F.concat(F.lit("0"), text)).otherwise(text)


def _array_text(value: SparkColumn, element: LogicalType, zone: str) -> SparkColumn:
    """Returns the text of an array: `{1,NULL,"a b"}`."""

    def written(one: SparkColumn) -> SparkColumn:
        if element.kind is Kind.BOOLEAN:
            return F.when(one, F.lit("t")).otherwise(F.lit("f"))
        found = text(one, element, zone)
        if element.kind in (*INTEGERS, *FLOATS, Kind.DECIMAL, Kind.DECIMAL_TEXT):
            return found
        escaped = F.regexp_replace(found, r'(["\\])', r"\\$1")
        return F.when(found.rlike(_NEEDS_QUOTES), F.concat(F.lit('"'), escaped, F.lit('"'))).otherwise(found)

    is_lost = F.exists(value, lambda one: one.isNotNull() & written(one).isNull())
    parts = F.transform(value, lambda one: F.when(one.isNull(), F.lit("NULL")).otherwise(written(one)))
    return F.when(~is_lost, F.concat(F.lit("{"), F.array_join(parts, ","), F.lit("}")))
