"""What Delta's own log says of a table, without a Spark job."""

from __future__ import annotations

from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

SELDOM_CHECKPOINTS = {"delta.checkpointInterval": "100"}
"""Delta's default of 10 costs a small batch seconds each tenth time; a hundred commit files are read at once."""


def exists(spark: SparkSession, path: str) -> bool:
    """Whether there is a Delta table at `path`."""
    return bool(DeltaTable.isDeltaTable(spark, path))


def create(spark: SparkSession, path: str, schema: T.StructType, properties: dict[str, str]) -> None:
    """An empty table at `path`; one that is there already stays as it is."""
    builder: Any = DeltaTable.createIfNotExists(spark).location(path).addColumns(schema)
    for key, value in properties.items():
        builder = builder.property(key, value)
    builder.execute()


def rows(spark: SparkSession, path: str, schema: T.StructType) -> DataFrame:
    """The table's rows; none where it hasn't been written yet, as `append` makes it."""
    if exists(spark, path):
        return spark.read.format("delta").load(path)
    return spark.createDataFrame([], schema)


def append(frame: DataFrame, path: str, **options: str) -> None:
    """One commit, the first of which makes the table."""
    if not exists(frame.sparkSession, path):
        options |= SELDOM_CHECKPOINTS
    frame.write.format("delta").mode("append").options(**options).save(path)
