"""Reads text as Postgres does in a cast (`text::type`), as Spark SQL expressions.

Null stands for a value that only the source knows: Postgres may read its form in another way, such as a date that
depends on `DateStyle`.
"""

from __future__ import annotations

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from ingest.values.casts_of_times import UTC_NAMES
from ingest.values.temporal import time_from_text
from ingest.values.types import FLOATS, INTEGERS, Kind, LogicalType, spark_type

_WHOLE = r"^[+-]?[0-9]{1,30}$"
_NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)"
_TRUE, _FALSE = ("t", "true", "y", "yes", "on", "1"), ("f", "false", "n", "no", "off", "0")
_DAY = r"(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK = r"([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,6})?)?"
_SHORT_CLOCK = len("12:34")
_OFFSET = r"(Z|[+-][0-9]{2}(:[0-9]{2})?)"
_UUID = r"^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$"
_SAME_JSON = r'^(true|false|null|\[\]|\{\}|"[^"\\\p{Cntrl}]*"|(?!-[0.]+$)-?(0|[1-9][0-9]*)(\.[0-9]+)?)$'
"""JSON that `json` and `jsonb` write alike."""
_READ = frozenset({*INTEGERS, *FLOATS, Kind.DECIMAL, Kind.DECIMAL_TEXT, Kind.BOOLEAN, Kind.DATE, Kind.TIMESTAMP}) | {
    *(Kind.TIMESTAMP_TZ, Kind.TIME, Kind.UUID, Kind.JSON, Kind.XML, Kind.BYTES)
}


def reads(type_: LogicalType) -> bool:
    """Returns True if `read` knows the value of some text."""
    return type_.kind in _READ


def read(text: SparkColumn, type_: LogicalType, zone: str = "UTC") -> SparkColumn:
    """Returns the value of a text in a type that `reads`. `zone`: the session's time zone at the source."""
    trimmed = F.trim(text)
    match type_.kind:
        case Kind.DECIMAL:
            return F.when(trimmed.rlike(f"^{_NUMBER}$"), trimmed.try_cast(spark_type(type_)))
        case Kind.DECIMAL_TEXT:
            return _numeric(trimmed)
        case Kind.FLOAT32 | Kind.FLOAT64:
            return _float(trimmed, type_)
        case Kind.BOOLEAN:
            word = F.lower(trimmed)
            return F.when(word.isin(*_TRUE), F.lit(True)).when(word.isin(*_FALSE), F.lit(False))
        case Kind.DATE | Kind.TIMESTAMP | Kind.TIMESTAMP_TZ | Kind.TIME:
            return _time(trimmed, type_, zone)
        case Kind.UUID | Kind.JSON | Kind.XML | Kind.BYTES:
            return _written(text, type_.kind)
        case _:
            return F.when(trimmed.rlike(_WHOLE), trimmed.try_cast(spark_type(type_)))


def _time(trimmed: SparkColumn, type_: LogicalType, zone: str) -> SparkColumn:
    if type_.kind is Kind.TIME:
        short = F.when(trimmed.rlike(f"^{_CLOCK}$"), trimmed)
        return time_from_text(F.when(F.length(short) == _SHORT_CLOCK, F.concat(short, F.lit(":00"))).otherwise(short))
    offset = f"{_OFFSET}?" if zone in UTC_NAMES else _OFFSET
    form = {Kind.DATE: "", Kind.TIMESTAMP: f"([ T]{_CLOCK})?"}.get(type_.kind, f"[ T]{_CLOCK}{offset}")
    return F.when(trimmed.rlike(f"^{_DAY}{form}$"), trimmed.try_cast(spark_type(type_)))


def _written(text: SparkColumn, kind: Kind) -> SparkColumn:
    """Returns the value of a type that is stored as text or bytes."""
    match kind:
        case Kind.UUID:
            return F.when(F.trim(text).rlike(_UUID), F.lower(F.trim(text)))
        case Kind.JSON:
            return F.when(text.rlike(_SAME_JSON), text)
        case Kind.XML:
            return F.when(~F.ltrim(text).startswith("<?xml"), text)
        case _:
            in_hex = text.rlike(r"^\\x([0-9A-Fa-f]{2})*$")
            written = F.when(~text.contains("\\"), F.encode(text, "UTF-8"))
            return F.when(in_hex, F.unhex(F.substr(text, F.lit(3)))).otherwise(written)


def _float(trimmed: SparkColumn, type_: LogicalType) -> SparkColumn:
    """Returns the float that is nearest to a number; null beyond its range."""
    found = trimmed.try_cast(spark_type(type_))
    is_number = trimmed.rlike(f"^{_NUMBER}([eE][+-]?[0-9]+)?$") & (F.abs(found) != float("inf"))
    return F.when(is_number | trimmed.isin("NaN", "Infinity", "-Infinity"), found)


def _numeric(trimmed: SparkColumn) -> SparkColumn:
    """Returns the text of a number as numeric writes it: a digit before the point, no sign of zero."""
    whole = F.regexp_replace(trimmed, r"^([+-]?)0*(?=[0-9]|\.|$)", "$1")
    signed = F.regexp_replace(F.regexp_replace(whole, r"^\+", ""), r"\.$", "")
    led = F.regexp_replace(signed, r"^(-?)(?=\.|$)", "$10")
    number = F.regexp_replace(led, r"^-(?=0(\.0*)?$)", "")
    return F.when(trimmed.rlike(f"^{_NUMBER}$"), number).when(trimmed == "NaN", trimmed)
