"""Converts stored values of an inferred type to a wider one. The result equals that of decoding their events again."""

from __future__ import annotations

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from ingest.values.json_text import json_text
from ingest.values.types import Kind, LogicalType, spark_type

_TEXTS = (Kind.DECIMAL_TEXT, Kind.JSON, Kind.STRING)


def converted(stored: SparkColumn, source: LogicalType, target: LogicalType) -> SparkColumn:
    """Returns `stored`, a `spark_type(source)`, as a `spark_type(target)`. `unknown`, nothing but nulls, becomes any
    type."""
    target_type = spark_type(target)
    if source.kind is Kind.UNKNOWN:
        return F.lit(None).cast(target_type)
    if source.kind is target.kind is Kind.ARRAY:
        source_element, target_element = source.elements[0], target.elements[0]
        return F.transform(stored, lambda value: converted(value, source_element, target_element))
    if source.kind in (Kind.ARRAY, Kind.FLOAT64) and target.kind in _TEXTS:
        return json_text(stored.cast("variant"))
    return stored.cast(target_type)
