"""What an erasure leaves of a personal value where its row stays: nothing, one value for all, or a coarser one.

Masking twice is masking once, so a row that is masked again stays as it is."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F

from ingest.changelog.change import quoted
from ingest.changelog.values.temporal import FIRST_INSTANT, FIRST_MICROS, LAST_MICROS, instant
from ingest.changelog.values.types import INFINITY_MICROS, MINUS_INFINITY_MICROS, Kind, spark_type
from ingest.config import Constant, Generalised
from ingest.errors import ConfigError
from ingest.evolution.policies import TableColumn

Masks = Mapping[str, Constant | Generalised | None]
"""column → what is left of it."""

_NEVER = (INFINITY_MICROS, MINUS_INFINITY_MICROS, FIRST_MICROS, FIRST_INSTANT, LAST_MICROS)
"""Timestamps that stand for infinite ones."""
_TIMES = {Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_TZ}
_NUMBERS = {Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT53, Kind.INT64, Kind.FLOAT32, Kind.FLOAT64}
_NUMBERS |= {Kind.DECIMAL}


def masked(table: str, column: TableColumn, masks: Masks) -> Column:
    """What is left of a column of `table`; all of it where no mask names it. Raises ConfigError where the mask that
    does is for another type."""
    value, kind = quoted(column.name), column.type.kind
    if column.name not in masks:
        return value
    stored = spark_type(column.type)
    match masks[column.name]:
        case None:
            return F.lit(None).cast(stored)
        case Constant(constant=constant):
            return F.lit(constant).try_cast(stored)
        case Generalised(generalise=("year" | "month") as unit) if kind in _TIMES:
            ends = [instant(micros).cast(stored) for micros in _NEVER]
            begin = F.trunc(value, unit) if kind is Kind.DATE else F.date_trunc(unit, value)
            return begin.cast(stored) if kind is Kind.DATE else F.when(value.isin(*ends), value).otherwise(begin)
        case Generalised(generalise=int(step)) if kind in _NUMBERS:
            return (value - F.pmod(value, F.lit(step))).cast(stored)
    raise ConfigError(
        f"tables.{table}.on_erasure.{column.name} is for another type: the column holds {column.type}",
        "generalise times to year or month, and numbers to a whole number; of other columns leave null or a constant",
    )


def unfit(table: str, columns: tuple[TableColumn, ...], masks: Masks) -> Column:
    """Of one row: a column whose constant is no value of its type; null where there is none."""
    constants = [c for c in columns if isinstance(masks.get(c.name), Constant)]
    return F.coalesce(
        *(F.when(masked(table, c, masks).isNull(), F.lit(c.name)) for c in constants), F.lit(None).cast("string")
    )
