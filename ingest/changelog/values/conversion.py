"""Converts stored values of an inferred type to a wider one. The result equals that of decoding their events again."""

from __future__ import annotations

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from ingest.changelog.values.json_text import json_text
from ingest.changelog.values.types import Kind, LogicalType, spark_type

_TEXTS = (Kind.DECIMAL_TEXT, Kind.JSON, Kind.STRING)


def converted(stored: SparkColumn, have: LogicalType, want: LogicalType) -> SparkColumn:
    """Returns `stored`, a `spark_type(have)`, as a `spark_type(want)`. `unknown`, nothing but nulls, becomes any
    type."""
    target = spark_type(want)
    if have.kind is Kind.UNKNOWN:
        return F.lit(None).cast(target)
    if have.kind is want.kind is Kind.ARRAY:
        element, wanted = have.elements[0], want.elements[0]
        return F.transform(stored, lambda value: converted(value, element, wanted))
    if have.kind in (Kind.ARRAY, Kind.FLOAT64) and want.kind in _TEXTS:
        return json_text(stored.cast("variant"))
    return stored.cast(target)
