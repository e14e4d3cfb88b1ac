"""Masks: what an erasure leaves of personal values in rows that stay. A null, a constant, or a coarser value.

Masking is idempotent: masking a masked row changes nothing."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F

from ingest.changelog.change import quoted
from ingest.config import Constant, Generalised
from ingest.errors import ConfigError
from ingest.evolution.policies import TableColumn
from ingest.values.temporal import FIRST_INSTANT, FIRST_MICROS, LAST_MICROS, instant
from ingest.values.types import INFINITY_MICROS, MINUS_INFINITY_MICROS, Kind, spark_type

Masks = Mapping[str, Constant | Generalised | None]
"""Column → mask; None masks by null."""

_INFINITE = (INFINITY_MICROS, MINUS_INFINITY_MICROS, FIRST_MICROS, FIRST_INSTANT, LAST_MICROS)
"""Timestamps that stand for infinity."""
_TIMES = {Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_TZ}
_NUMBERS = {Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT53, Kind.INT64, Kind.FLOAT32, Kind.FLOAT64}
_NUMBERS |= {Kind.DECIMAL}


def mask_column(table: str, column: TableColumn, masks: Masks) -> Column:
    """Returns the masked column, or the column itself if `masks` doesn't name it. Raises ConfigError if the mask
    doesn't fit the column's type."""
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
            ends = [instant(micros).cast(stored) for micros in _INFINITE]
            begin = F.trunc(value, unit) if kind is Kind.DATE else F.date_trunc(unit, value)
            return begin.cast(stored) if kind is Kind.DATE else F.when(value.isin(*ends), value).otherwise(begin)
        case Generalised(generalise=int(step)) if kind in _NUMBERS:
            return (value - F.pmod(value, F.lit(step))).cast(stored)
    raise ConfigError(
        f"tables.{table}.on_erasure.{column.name} is for another type: the column holds {column.type}",
        "generalise times to year or month, and numbers to a whole number; for other columns use null or a constant",
    )


def invalid_constant(table: str, columns: tuple[TableColumn, ...], masks: Masks) -> Column:
    """Returns the name of a column whose constant is no value of the column's type, as a column; null if all fit."""
    constants = [c for c in columns if isinstance(masks.get(c.name), Constant)]
    return F.coalesce(
        *(F.when(mask_column(table, c, masks).isNull(), F.lit(c.name)) for c in constants), F.lit(None).cast("string")
    )
