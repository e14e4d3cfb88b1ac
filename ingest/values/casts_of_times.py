"""Converts dates, times and timestamps as Postgres' casts do, as Spark SQL expressions. The session's zone is UTC.

The first and the last time of the range may stand for any time beyond it (`temporal`), so only the source knows these,
and times near a change of its zone's offset.
"""

from __future__ import annotations

from functools import cache
from zoneinfo import available_timezones

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from ingest.values.temporal import (
    FIRST_DAY,
    FIRST_INSTANT,
    FIRST_MICROS,
    LAST_DAY,
    LAST_MICROS,
    instant,
    time_from_text,
)
from ingest.values.types import Kind

UTC_NAMES = ("UTC", "Etc/UTC", "GMT", "Etc/GMT", "Universal", "Zulu")
"""Names of zones that never have an offset."""
_CASTS = {
    Kind.DATE: (Kind.TIMESTAMP, Kind.TIMESTAMP_TZ),
    Kind.TIMESTAMP: (Kind.DATE, Kind.TIMESTAMP_TZ, Kind.TIME),
    Kind.TIMESTAMP_TZ: (Kind.DATE, Kind.TIMESTAMP, Kind.TIME),
}
_NEAR_HOURS = 26
_DAY_MICROS = 86_400_000_000


def has_time_cast(before: Kind, after: Kind) -> bool:
    """Returns True if `time_cast` converts between the kinds."""
    return after in _CASTS.get(before, ())


def time_cast(value: SparkColumn, before: Kind, after: Kind, zone: str) -> SparkColumn:
    """Returns a time of a kind as one of another (`has_time_cast`). `zone`: the session's time zone at the source."""
    local = _at_zone(value, "UTC", zone) if before is Kind.TIMESTAMP_TZ else value.cast("timestamp_ntz")
    match after:
        case Kind.DATE:
            found = local.cast("date")
        case Kind.TIME:
            found = time_from_text(F.date_format(local, "HH:mm:ss.SSSSSS"))
        case Kind.TIMESTAMP_TZ:
            found = _at_zone(local, zone, "UTC").cast("timestamp")
        case _:
            found = local
    return F.when(is_exact(value, before), found)


def is_exact(value: SparkColumn, kind: Kind) -> SparkColumn:
    """Returns true for a date or timestamp that stands for no other one, also in another zone."""
    if kind is Kind.DATE:
        first, last = (F.date_from_unix_date(F.lit(day)) for day in (FIRST_DAY, LAST_DAY))
        return (value > first) & (value < last)
    begin = FIRST_MICROS if kind is Kind.TIMESTAMP else FIRST_INSTANT
    stored = "timestamp_ntz" if kind is Kind.TIMESTAMP else "timestamp"
    lowest, highest = (instant(at).cast(stored) for at in (begin + _DAY_MICROS, LAST_MICROS - _DAY_MICROS))
    return (value >= lowest) & (value <= highest)


def _at_zone(value: SparkColumn, source: str, target: str) -> SparkColumn:
    """Returns a timestamp without time zone in another zone; null near a change of an offset, and for a zone that isn't
    in the tz database."""
    local = value.cast("timestamp_ntz")
    if source in UTC_NAMES and target in UTC_NAMES:
        return local
    if not {source, target} <= {*_zones(), *UTC_NAMES}:
        return F.lit(None).cast("timestamp_ntz")

    def moved(at: SparkColumn) -> SparkColumn:
        return F.convert_timezone(F.lit(source), F.lit(target), at)

    hours = F.make_dt_interval(F.lit(0), F.lit(_NEAR_HOURS))
    is_far = (moved(local + hours) - moved(local - hours)) == F.make_dt_interval(F.lit(0), F.lit(2 * _NEAR_HOURS))
    return F.when(is_far, moved(local))


@cache
def _zones() -> frozenset[str]:
    return frozenset(available_timezones())
