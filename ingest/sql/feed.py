"""Finds the versions whose change data feed can be read: Delta reads a feed by the table's current schema."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import types as T


def readable_since(spark: SparkSession, path: str) -> int:
    """Returns the first version since which no current column has changed its type. Types only ever widen, so a binary
    search finds it. Raises Delta's exception if the log doesn't reach that far back."""
    history = spark.sql(f"DESCRIBE HISTORY delta.`{path.replace('`', '``')}`").selectExpr(
        "min(version)", "max(version)"
    )
    first, last = history.collect()[0]
    current = _types(spark, path, last)
    while first < last:
        middle = (first + last) // 2
        types = _types(spark, path, middle)
        if all(current.get(name, kind) == kind for name, kind in types.items()):
            last = middle
        else:
            first = middle + 1
    return int(last)


def _types(spark: SparkSession, path: str, version: int) -> dict[str, T.DataType]:
    schema = spark.read.format("delta").option("versionAsOf", version).load(path).schema
    return {field.name: field.dataType for field in schema}
