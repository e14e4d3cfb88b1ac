"""Casts values as Postgres does, where that loses nothing."""

from __future__ import annotations

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from ingest.values.postgres_cast import Cast, has_cast, is_kept, postgres_cast
from ingest.values.types import Kind, LogicalType

_ZEROS_AT_THE_END = r"(\.[0-9]*?)0+$"


def exact_cast(value: SparkColumn, cast: Cast) -> SparkColumn:
    """Returns `value`, a `spark_type(cast.before)`, as a `spark_type(cast.after)`; null if the cast isn't known, or if
    the cast back gives another value."""
    before, after, back = cast.before, cast.after, Cast(cast.after, cast.before, cast.zone)
    found = postgres_cast(value, cast)
    if is_kept(before, after) or not has_cast(before, after):
        return found
    if not has_cast(after, before):
        # A text tells its value, even where Postgres' text isn't read here.
        return found if after.kind is Kind.STRING else F.when(F.lit(False), found)
    again = postgres_cast(found, back)
    return F.when(_comparable(again, before).eqNullSafe(_comparable(value, before)), found)


def _comparable(value: SparkColumn, type_: LogicalType) -> SparkColumn:
    """Returns a value that equal ones share: digits of a number are equal with zeros at their end."""
    if type_.kind is not Kind.DECIMAL_TEXT:
        return value
    return F.regexp_replace(F.regexp_replace(value, _ZEROS_AT_THE_END, "$1"), r"\.$", "")
