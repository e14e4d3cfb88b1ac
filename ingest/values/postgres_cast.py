"""Converts values as Postgres' casts do (`ALTER COLUMN … TYPE t [USING x::t]`), as Spark SQL expressions.

Null stands for a value that only the source knows: its cast here isn't certain to be that of Postgres, or the pair of
types has no cast. A test compares each pair with Postgres. The session's zone is UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from ingest.values import casts_from_text, casts_to_text
from ingest.values.casts_of_times import UTC_NAMES, has_time_cast, time_cast
from ingest.values.conversion import converted
from ingest.values.decimals import placed
from ingest.values.types import FLOATS, INTEGERS, MAX_DIGITS, Kind, LogicalType, spark_type, widest

_DECIMALS = (Kind.DECIMAL, Kind.DECIMAL_TEXT)
_NUMBERS = (*INTEGERS, *FLOATS, *_DECIMALS)
_DIGITS = {Kind.FLOAT32: 6, Kind.FLOAT64: 15}
"""The number of significant digits by which Postgres converts a float to a numeric."""


@dataclass(frozen=True, slots=True)
class Cast:
    """A conversion at the source. `zone`: the session's time zone there."""

    before: LogicalType
    after: LogicalType
    zone: str = "UTC"


def is_kept(before: LogicalType, after: LogicalType) -> bool:
    """Returns True if a cast leaves each value as it is, but for the digits of a wider type."""
    if before.kind is Kind.DECIMAL and after.kind is Kind.DECIMAL:
        return before.scale <= after.scale
    if before.kind in INTEGERS and after.kind in (*INTEGERS, Kind.DECIMAL):
        return True
    if before.kind is after.kind is Kind.ARRAY:
        return is_kept(before.elements[0], after.elements[0])
    if before.kind is Kind.STRING and after.kind in (Kind.ENUM, Kind.LTREE):
        return True
    # The first one decides the order of a struct's fields.
    return widest(after, before) == after


class Known(StrEnum):
    """Which values are known after a cast."""

    EVERY = "those of Postgres' cast"
    SOME = "those of Postgres' cast where it is certain, else null"
    NONE = "null: only the source knows them"


def known_values(before: LogicalType, after: LogicalType) -> Known:
    """Returns which values of the type `before` are known as values of `after`."""
    if is_kept(before, after):
        return Known.EVERY
    if _convert(before, after) is None:
        return Known.NONE
    is_plain_text = after.kind is Kind.STRING and before.kind in casts_to_text.PLAIN
    is_number = before.kind in (*INTEGERS, Kind.DECIMAL) and after.kind in (*FLOATS, *INTEGERS, Kind.DECIMAL)
    return Known.EVERY if is_plain_text or is_number or Kind.BOOLEAN in (before.kind, after.kind) else Known.SOME


def has_cast(before: LogicalType, after: LogicalType) -> bool:
    """Returns True if `postgres_cast` knows the cast of some value other than null."""
    return is_kept(before, after) or _convert(before, after) is not None


def postgres_cast(value: SparkColumn, cast: Cast) -> SparkColumn:
    """Returns `value`, a `spark_type(cast.before)`, as a `spark_type(cast.after)`; null if only the source knows it."""
    before, after = cast.before, cast.after
    if after.kind is Kind.DECIMAL_TEXT and after.precision:
        plain = postgres_cast(value, Cast(before, LogicalType(Kind.DECIMAL_TEXT), cast.zone))
        return _rounded(plain, after.scale)
    if is_kept(before, after):
        return _kept(value, before, after)
    convert = _convert(before, after)
    return F.lit(None).cast(spark_type(after)) if convert is None else convert(value, cast)


def converted_by(value: SparkColumn, casts: Iterable[Cast]) -> SparkColumn:
    """Returns a value after several casts, one after the other."""
    return reduce(postgres_cast, casts, value)


def as_before(value: SparkColumn, stored: LogicalType, type_: LogicalType) -> tuple[SparkColumn, LogicalType]:
    """Returns a stored value of a column in the type that it had at the source, and this type: a column is stored by
    the widest of its types. Integers stay as wide as they are."""
    if stored.kind in INTEGERS and type_.kind in INTEGERS:
        return value, stored
    same = spark_type(stored) == spark_type(type_)
    return (value if same else value.try_cast(spark_type(type_))), type_


def is_reversible(cast: Cast) -> bool:
    """Returns True if `before_cast` gives back each value that the cast knows."""
    before, after = cast.before, cast.after
    if is_kept(before, after) or (before.kind is Kind.BOOLEAN and after.kind in INTEGERS):
        return True
    if after.kind is Kind.STRING:
        return casts_to_text.has_text(before) and casts_from_text.reads(before)
    if after.kind is Kind.DECIMAL_TEXT:
        return before.kind in INTEGERS or (before.kind is Kind.DECIMAL and before.scale <= after.scale)
    return {before.kind, after.kind} == {Kind.TIMESTAMP, Kind.TIMESTAMP_TZ} and cast.zone in UTC_NAMES


def before_cast(value: SparkColumn, cast: Cast) -> SparkColumn:
    """Returns the value of which a reversible cast made `value`."""
    before, after = cast.before, cast.after
    if spark_type(before) == spark_type(after):
        return value
    if is_kept(before, after):
        return value.try_cast(spark_type(before))
    return postgres_cast(value, Cast(after, before, cast.zone))


_Convert = Callable[[SparkColumn, Cast], SparkColumn]


def _kept(value: SparkColumn, before: LogicalType, after: LogicalType) -> SparkColumn:
    if widest(after, before) == after:
        return converted(value, before, after)
    return value.try_cast(spark_type(after))


def _convert(before: LogicalType, after: LogicalType) -> _Convert | None:
    """Returns the conversion between two types that changes values; None if there is none."""
    pair = before.kind, after.kind
    if after.kind is Kind.STRING:
        return _to_text if casts_to_text.has_text(before) else None
    if before.kind is Kind.STRING:
        return _from_text if casts_from_text.reads(after) else None
    if pair == (Kind.ARRAY, Kind.ARRAY):
        return _arrays if has_cast(before.elements[0], after.elements[0]) else None
    if before.kind in _NUMBERS and after.kind in _NUMBERS:
        return _numbers
    if before.kind in INTEGERS and after.kind is Kind.BOOLEAN:
        return lambda value, _: value != 0
    if before.kind is Kind.BOOLEAN and after.kind in INTEGERS:
        return lambda value, cast: value.cast(spark_type(cast.after))
    return _times if has_time_cast(*pair) else None


def _to_text(value: SparkColumn, cast: Cast) -> SparkColumn:
    return casts_to_text.text(value, cast.before, cast.zone)


def _from_text(value: SparkColumn, cast: Cast) -> SparkColumn:
    return casts_from_text.read(value, cast.after, cast.zone)


def _times(value: SparkColumn, cast: Cast) -> SparkColumn:
    return time_cast(value, cast.before.kind, cast.after.kind, cast.zone)


def _arrays(value: SparkColumn, cast: Cast) -> SparkColumn:
    """Returns the array of the elements' casts; null if one of them is known to the source only."""
    element = Cast(cast.before.elements[0], cast.after.elements[0], cast.zone)
    found = F.transform(value, lambda one: postgres_cast(one, element))
    is_lost = F.exists(value, lambda one: one.isNotNull() & postgres_cast(one, element).isNull())
    return F.when(~is_lost, found)


def _numbers(value: SparkColumn, cast: Cast) -> SparkColumn:
    before, after = cast.before.kind, cast.after.kind
    target = spark_type(cast.after)
    match before, after:
        case (Kind.DECIMAL, Kind.DECIMAL_TEXT):
            return value.cast("string")
        case (Kind.DECIMAL | Kind.DECIMAL_TEXT, _) if after in INTEGERS:
            return value.try_cast("decimal(38,0)").try_cast(target)
        case (_, _) if before in FLOATS and after in INTEGERS:
            return F.rint(value).try_cast(target)
        case (_, _) if before in FLOATS and after in _DECIMALS:
            return _numeric_of_float(value, cast)
        case (_, Kind.FLOAT32 | Kind.FLOAT64):
            found = value.try_cast(target)
            is_infinite = F.abs(found) == float("inf")
            was_infinite = F.abs(value.try_cast("double")) == float("inf")
            return F.when(~is_infinite | was_infinite, found)
        case _:
            return value.try_cast(target)


def _rounded(number: SparkColumn, scale: int) -> SparkColumn:
    """Returns the text of a number with `scale` digits after the point; null for one of more than 38 digits that would
    have to be rounded."""
    fraction = F.length(F.split_part(number, F.lit("."), F.lit(2)))
    point = F.when(number.contains(".") | F.lit(scale == 0), F.lit("")).otherwise(F.lit("."))
    padded = F.concat(number, point, F.repeat(F.lit("0"), F.lit(scale) - fraction))
    rounded = number.try_cast(f"decimal({MAX_DIGITS},{scale})").cast("string") if scale <= MAX_DIGITS else None
    is_special = number.isin("NaN", "Infinity", "-Infinity")
    found = F.when(is_special, number).when(fraction <= scale, padded)
    return found if rounded is None else found.otherwise(rounded)


def _numeric_of_float(value: SparkColumn, cast: Cast) -> SparkColumn:
    """Returns the number that a float's first 15 (6) significant digits mean, as Postgres does.

    A number with one digit more that ends in 5 is known to the source only: which way it rounds depends on all binary
    digits."""
    digits = _DIGITS[cast.before.kind]
    shortest = value.cast("double").cast("string")
    mantissa = F.split_part(F.ltrim(shortest, F.lit("-")), F.lit("E"), F.lit(1))
    significant = F.trim(F.replace(mantissa, F.lit("."), F.lit("")), F.lit("0"))
    is_tie = (F.length(significant) == digits + 1) & significant.endswith("5")
    is_finite = ~F.isnan(value) & (F.abs(value) != float("inf"))
    written = F.format_string(f"%.{digits - 1}e", value.cast("double"))
    if cast.after.kind is Kind.DECIMAL:
        found = written.try_cast(spark_type(cast.after))
    else:
        exponent = F.split_part(written, F.lit("e"), F.lit(2)).cast("int")
        whole = F.replace(F.split_part(written, F.lit("e"), F.lit(1)), F.lit("."), F.lit(""))
        kept = F.regexp_replace(whole, "(?<=[0-9])0+$", "")
        scale = F.length(F.ltrim(kept, F.lit("-"))) - 1 - exponent
        found = F.regexp_replace(placed(kept, scale), "^-?0+$", "0")
    return F.when(is_finite & ~is_tie & casts_to_text.has_all_digits(value, cast.before.kind), found)
