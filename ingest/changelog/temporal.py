"""Dates, times and timestamps out of numbers and ISO text, as Spark SQL expressions. The session is in UTC.

Silver counts microseconds: of nanoseconds the last three digits are dropped, towards the past. Text is
matched before it is cast, because Spark's cast also takes '2016' for a date and '12:30' for a moment of
today.
"""

from __future__ import annotations

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from ingest.changelog.types import INFINITY_MICROS, MINUS_INFINITY_MICROS

_DAY = r"[+-]?[0-9]{4,6}-[0-9]{2}-[0-9]{2}"
_CLOCK = r"[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?"
_OFFSET = r"(Z|[+-][0-9]{2}(:?[0-9]{2}(:?[0-9]{2})?)?)"
_DATE = f"^{_DAY}Z?$"
_TIMESTAMP = f"^{_DAY}[T ]{_CLOCK}Z?$"
_TIMESTAMP_TZ = f"^{_DAY}[T ]{_CLOCK} ?{_OFFSET}$"
_TIME = r"^-?[0-9]{2,3}:[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?Z?$"
_TIME_TZ = rf"^[0-9]{{2}}:[0-5][0-9]:[0-5][0-9](\.[0-9]{{1,9}})?{_OFFSET}$"
_MAX_HOURS = 1000  # MySQL's TIME goes to 838:59:59


def date_from_text(text: SparkColumn) -> SparkColumn:
    """An ISO date; the Z that `isostring` adds carries nothing."""
    return F.when(text.rlike(_DATE), F.rtrim(text, F.lit("Z")).try_cast("date"))


def date_from_any(text: SparkColumn) -> SparkColumn:
    """Days since 1970-01-01, or an ISO date."""
    return F.coalesce(F.date_from_unix_date(text.try_cast("int")), date_from_text(text))


def time_from_text(text: SparkColumn) -> SparkColumn:
    """An ISO time with a fraction as short as it can be; a Z is dropped."""
    return F.when(text.rlike(_TIME), _short_fraction(F.rtrim(text, F.lit("Z"))))


def time_tz_from_text(text: SparkColumn) -> SparkColumn:
    """An ISO time with its offset and a fraction as short as it can be."""
    return F.when(text.rlike(_TIME_TZ), _short_fraction(text))


def time_from_units(units: SparkColumn, digits: int) -> SparkColumn:
    """ISO text out of a number of 10^-digits s since midnight; 24:00:00 and MySQL's -838:59:59 are legal."""
    per_second = 10**digits
    magnitude = F.abs(units.cast("bigint"))
    seconds = _div(magnitude, per_second)
    hours = _div(seconds, 3600)
    text = F.concat(
        F.when(units < 0, F.lit("-")).otherwise(F.lit("")),
        F.when(hours < 10, F.lit("0")).otherwise(F.lit("")),
        hours.cast("string"),
        F.lit(":"),
        _padded(_div(seconds, 60) % 60, 2),
        F.lit(":"),
        _padded(seconds % 60, 2),
    )
    fraction = magnitude % per_second
    with_fraction = F.concat(text, F.lit("."), F.rtrim(_padded(fraction, digits), F.lit("0")))
    limit = _MAX_HOURS * 3600 * per_second
    return F.when(
        (units.cast("bigint") > -limit) & (units.cast("bigint") < limit),
        F.when(fraction == 0, text).otherwise(with_fraction),
    )


def instant_from_units(units: SparkColumn, digits: int) -> SparkColumn:
    """A timestamp out of a number of 10^-digits s since 1970-01-01.

    Postgres' infinite ones are the same two numbers in milliseconds and in microseconds.
    """
    match digits:
        case 3:
            infinite = units.isin(INFINITY_MICROS, MINUS_INFINITY_MICROS)
            scaled = F.try_multiply(units, F.lit(1000).cast("bigint"))
            return F.timestamp_micros(F.when(infinite, units).otherwise(scaled))
        case 6:
            return F.timestamp_micros(units)
        case _:
            return F.timestamp_micros(micros_from_nanos(units))


def micros_from_nanos(nanos: SparkColumn) -> SparkColumn:
    return _div(nanos, 1000) - F.when(nanos % 1000 < 0, F.lit(1)).otherwise(F.lit(0)).cast("bigint")


def timestamp_from_text(text: SparkColumn) -> SparkColumn:
    """An ISO timestamp without offset; the Z that `isostring` adds carries nothing."""
    return F.when(text.rlike(_TIMESTAMP), text.try_cast("timestamp_ntz"))


def timestamp_tz_from_text(text: SparkColumn) -> SparkColumn:
    """An ISO timestamp with offset, `infinity` or `-infinity`."""
    return (
        F.when(text == "infinity", instant(INFINITY_MICROS))
        .when(text == "-infinity", instant(MINUS_INFINITY_MICROS))
        .when(text.rlike(_TIMESTAMP_TZ), text.try_cast("timestamp"))
    )


def instant(micros: int) -> SparkColumn:
    return F.timestamp_micros(F.lit(micros).cast("bigint"))


def _short_fraction(text: SparkColumn) -> SparkColumn:
    short = F.regexp_replace(text, r"(\.[0-9]*[1-9])0+(?![0-9])", "$1")
    return F.when(text.contains("."), F.regexp_replace(short, r"\.0+(?![0-9])", "")).otherwise(text)


def _div(value: SparkColumn, divisor: int) -> SparkColumn:
    return F.call_function("div", value, F.lit(divisor).cast("bigint"))


def _padded(value: SparkColumn, digits: int) -> SparkColumn:
    return F.lpad(value.cast("string"), digits, "0")
