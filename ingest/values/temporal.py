"""Decodes dates, times and timestamps from numbers and ISO text, as Spark SQL expressions. The session's zone is UTC.

Silver has microseconds: nanoseconds are rounded down, towards the past. Text is matched by a pattern before it is cast,
because Spark's cast also accepts '2016' as a date and '12:30' as a time of today. Dates and timestamps outside of the
years 1 to 9999 (UTC) are treated by the rule `OutOfRange`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from ingest.values.types import INFINITY_MICROS, MINUS_INFINITY_MICROS, OutOfRange

FIRST_DAY, LAST_DAY = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31, in days since 1970-01-01."""
_DAY_MICROS = 86_400_000_000
FIRST_MICROS, LAST_MICROS = FIRST_DAY * _DAY_MICROS, (LAST_DAY + 1) * _DAY_MICROS - 1
FIRST_INSTANT = FIRST_MICROS + 2 * _DAY_MICROS
"""The first timestamp with a time zone, in microseconds since 1970-01-01: Python can't represent earlier ones in every
zone."""

# Infinite dates as Debezium writes them. Older versions write both as a year before Christ. In snapshots and arrays it
# reads dates as java.sql.Date, whose days overflow, to a day that depends on Connect's time zone.
_INFINITE_DAYS = (2_146_033_979, -2_147_472_692, 2**31 - 1, -622_191_235, -622_191_234, -622_191_233)
_MINUS_INFINITE_DAYS = (-2_147_472_691, -(2**31), -625_821_273, -625_821_272, -625_821_271)
_INFINITE_UNITS = (INFINITY_MICROS, INFINITY_MICROS // 1000, 2**63 - 1)
_MINUS_INFINITE_UNITS = (MINUS_INFINITY_MICROS, MINUS_INFINITY_MICROS // 1000, -(2**63))
# Microseconds beyond 2**63 - 1 overflow in Debezium, to numbers from -2**63. Postgres has no time before 4714 BC.
_OVERFLOWN_MICROS = -210_866_803_200_000_000
_INFINITE = r"^(infinity|[+]5877611-06-21Z?|-5877611-06-21Z?|[+]294247-01-10T04:00:25.*|[+]292278994-08-1[67]T.*)$"
_MINUS_INFINITE = r"^(-infinity|-5877611-06-22Z?|-290308-12-21T19:59:27.*|[+]292269055-12-0[123]T.*)$"

_DAY = r"[+-]?[0-9]{4,9}-[0-9]{2}-[0-9]{2}"
_CLOCK = r"[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?"
_OFFSET = r"(Z|[+-][0-9]{2}(:?[0-9]{2}(:?[0-9]{2})?)?)"
_ERA = r"( BC)?"
_DATE = f"^{_DAY}Z?{_ERA}$"
_TIMESTAMP = f"^{_DAY}[T ]{_CLOCK}Z?{_ERA}$"
_TIMESTAMP_TZ = f"^{_DAY}[T ]{_CLOCK} ?{_OFFSET}{_ERA}$"
_USUAL = r"^(?!0000|0001|9999)[0-9]{4}-[^C]*$"
_AFTER_9999 = r"^[+]?[0-9]{5,9}-.*[^C]$"
_BEFORE_1 = r"^(-|0000-)|BC$"
_TIME = r"^-?[0-9]{2,3}:[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?Z?$"
_TIME_TZ = rf"^[0-9]{{2}}:[0-5][0-9]:[0-5][0-9](\.[0-9]{{1,9}})?{_OFFSET}$"
_MAX_HOURS = 1000  # MySQL's TIME goes to 838:59:59


@dataclass(frozen=True)
class _Range:
    """Tests of a value against the range, as columns. `usual`: a cheap test that is true only for values that are
    neither infinite nor out of range. `first`, `last`: the ends of the range."""

    usual: SparkColumn
    infinite: SparkColumn
    minus_infinite: SparkColumn
    above: SparkColumn
    below: SparkColumn
    first: SparkColumn
    last: SparkColumn

    def applied(self, value: SparkColumn, rule: OutOfRange) -> SparkColumn:
        """Returns `value` if it is in range, else the result of the rule; null for a value that the rule excludes."""
        if rule is OutOfRange.KEEP:
            return value
        return F.when(self.usual, value).otherwise(self._of_unusual(value, rule))

    def _of_unusual(self, value: SparkColumn, rule: OutOfRange) -> SparkColumn:
        # Test for infinity first: older versions of Debezium write both infinite dates as dates before Christ.
        ends = F.when(self.infinite, self.last).when(self.minus_infinite, self.first)
        match rule:
            case OutOfRange.CLAMP:
                return ends.when(self.above, self.last).when(self.below, self.first).otherwise(value)
            case OutOfRange.CLAMP_INFINITE:
                return ends.when(~self.above & ~self.below, value)
            case _:
                return F.when(~self.infinite & ~self.minus_infinite & ~self.above & ~self.below, value)


def date_from_days(days: SparkColumn, rule: OutOfRange) -> SparkColumn:
    """Returns the date of a number of days since 1970-01-01."""
    found = _Range(
        days.between(FIRST_DAY, LAST_DAY),
        days.isin(*_INFINITE_DAYS),
        days.isin(*_MINUS_INFINITE_DAYS),
        days > LAST_DAY,
        days < FIRST_DAY,
        _date(FIRST_DAY),
        _date(LAST_DAY),
    )
    return found.applied(F.date_from_unix_date(days.try_cast("int")), rule)


def date_from_text(text: SparkColumn, rule: OutOfRange) -> SparkColumn:
    """Returns the date of an ISO date, or of Postgres' text form. The Z that `isostring` adds has no meaning."""
    value = F.when(text.rlike(_DATE), F.rtrim(text, F.lit("Z")).try_cast("date"))
    return _of_text(text, _DATE, _date(FIRST_DAY), _date(LAST_DAY)).applied(value, rule)


def date_from_any(text: SparkColumn, rule: OutOfRange) -> SparkColumn:
    """Returns the date of a number of days since 1970-01-01, or of an ISO date."""
    return F.coalesce(date_from_days(text.try_cast("int"), rule), date_from_text(text, rule))


def time_from_text(text: SparkColumn) -> SparkColumn:
    """Returns an ISO time without trailing zeros in its fraction, and without Z; null for other text."""
    return F.when(text.rlike(_TIME), _short_fraction(F.rtrim(text, F.lit("Z"))))


def time_tz_from_text(text: SparkColumn) -> SparkColumn:
    """Returns an ISO time with its offset, without trailing zeros in its fraction; null for other text."""
    return F.when(text.rlike(_TIME_TZ), _short_fraction(text))


def time_from_units(units: SparkColumn, digits: int) -> SparkColumn:
    """Returns the ISO text of a number of 10^-digits s since midnight. 24:00:00 and MySQL's -838:59:59 are valid."""
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


def instant_from_units(units: SparkColumn, digits: int, rule: OutOfRange, zoned: bool = False) -> SparkColumn:
    """Returns the timestamp of a number of 10^-digits s since 1970-01-01.

    Postgres' infinite timestamps are the same two numbers in every unit. `zoned`: the type has a time zone.
    """
    begin = FIRST_INSTANT if zoned else FIRST_MICROS
    overflown = F.lit(False)
    match digits:
        case 3:
            unscaled = units.isin(INFINITY_MICROS, MINUS_INFINITY_MICROS)
            scaled = F.try_multiply(units, F.lit(1000).cast("bigint"))
            value = F.timestamp_micros(F.when(unscaled, units).otherwise(scaled))
            first, last = begin // 1000, LAST_MICROS // 1000
        case 6:
            overflown = units < _OVERFLOWN_MICROS
            unscaled = ~overflown | units.isin(*_MINUS_INFINITE_UNITS)
            value = F.timestamp_micros(F.when(unscaled, units) if rule is OutOfRange.KEEP else units)
            first, last = begin, LAST_MICROS
        case _:
            value = F.timestamp_micros(micros_from_nanos(units))
            first, last = MINUS_INFINITY_MICROS + 1, INFINITY_MICROS - 1
    found = _Range(
        units.between(first, last),
        units.isin(*_INFINITE_UNITS),
        units.isin(*_MINUS_INFINITE_UNITS),
        (units > last) | overflown,
        units < first,
        instant(begin),
        instant(LAST_MICROS),
    )
    return found.applied(value, rule)


def micros_from_nanos(nanos: SparkColumn) -> SparkColumn:
    """Returns microseconds, rounded down."""
    return _div(nanos, 1000) - F.when(nanos % 1000 < 0, F.lit(1)).otherwise(F.lit(0)).cast("bigint")


def timestamp_from_text(text: SparkColumn, rule: OutOfRange) -> SparkColumn:
    """Returns the timestamp of an ISO timestamp without offset. The Z that `isostring` adds has no meaning."""
    value = F.when(text.rlike(_TIMESTAMP), text.try_cast("timestamp_ntz"))
    ends = (instant(micros).cast("timestamp_ntz") for micros in (FIRST_MICROS, LAST_MICROS))
    return _of_text(text, _TIMESTAMP, *ends).applied(_or_infinite(text, value, "timestamp_ntz", rule), rule)


def timestamp_tz_from_text(text: SparkColumn, rule: OutOfRange) -> SparkColumn:
    """Returns the instant of an ISO timestamp with offset, or of `infinity` or `-infinity`."""
    value = F.when(text.rlike(_TIMESTAMP_TZ), text.try_cast("timestamp"))
    first, last = instant(FIRST_INSTANT), instant(LAST_MICROS)
    found = _of_text(text, _TIMESTAMP_TZ, first, last)
    # In UTC a timestamp may be out of range though its text is not.
    above, below = (F.coalesce(beyond, F.lit(False)) for beyond in (value > last, value < first))
    found = replace(found, above=found.above | above, below=found.below | below)
    return found.applied(_or_infinite(text, value, "timestamp", rule), rule)


def _of_text(text: SparkColumn, pattern: str, first: SparkColumn, last: SparkColumn) -> _Range:
    dated = text.rlike(pattern)
    above, below = dated & text.rlike(_AFTER_9999), dated & text.rlike(_BEFORE_1)
    return _Range(text.rlike(_USUAL), text.rlike(_INFINITE), text.rlike(_MINUS_INFINITE), above, below, first, last)


def _or_infinite(text: SparkColumn, value: SparkColumn, kind: str, rule: OutOfRange) -> SparkColumn:
    """Returns `value`, with the instants that represent infinite timestamps if the rule keeps these."""
    if rule is not OutOfRange.KEEP:
        return value
    infinite = F.when(text == "infinity", instant(INFINITY_MICROS))
    return F.coalesce(infinite.when(text == "-infinity", instant(MINUS_INFINITY_MICROS)).cast(kind), value)


def _date(days: int) -> SparkColumn:
    return F.date_from_unix_date(F.lit(days))


def instant(micros: int) -> SparkColumn:
    """Returns the timestamp of a number of microseconds since 1970-01-01."""
    return F.timestamp_micros(F.lit(micros).cast("bigint"))


def _short_fraction(text: SparkColumn) -> SparkColumn:
    short = F.regexp_replace(text, r"(\.[0-9]*[1-9])0+(?![0-9])", "$1")
    return F.when(text.contains("."), F.regexp_replace(short, r"\.0+(?![0-9])", "")).otherwise(text)


def _div(value: SparkColumn, divisor: int) -> SparkColumn:
    return F.call_function("div", value, F.lit(divisor).cast("bigint"))


def _padded(value: SparkColumn, digits: int) -> SparkColumn:
    return F.lpad(value.cast("string"), digits, "0")
