"""Finds the archived objects that hold given records, by their offset ranges."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F


def located(objects: DataFrame, coordinates: DataFrame) -> DataFrame:
    """Returns `key` (of the object), `offset` and `request` of those `coordinates` (`topic`, `partition`, `offset`,
    `request`) that lie within an object. `objects`: `StoredObject` rows whose offset ranges don't overlap.

    A window over each topic partition finds them in one pass; a range join would compare every record with every
    object."""
    begins = objects.select(
        "topic",
        F.col("partition").cast("bigint").alias("partition"),
        F.col("first_offset").alias("offset"),
        F.lit(None).cast("string").alias("request"),
        F.struct("key", "last_offset").alias("begins"),
    )
    asked = coordinates.select(
        "topic", F.col("partition").cast("bigint"), "offset", "request", F.lit(None).alias("begins")
    )
    log = Window.partitionBy("topic", "partition").orderBy("offset", F.col("begins").isNull())
    so_far = log.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    walked = begins.unionByName(asked).withColumn("within", F.last("begins", ignorenulls=True).over(so_far))
    held = F.col("begins").isNull() & (F.col("offset") <= F.col("within.last_offset"))
    return walked.where(held).select("within.key", "offset", "request")
