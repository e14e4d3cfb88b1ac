"""Finds the archived objects that hold given records, by their offset ranges."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F


def locate_records(objects: DataFrame, coordinates: DataFrame) -> DataFrame:
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
    wanted = coordinates.select(
        "topic", F.col("partition").cast("bigint"), "offset", "request", F.lit(None).alias("begins")
    )
    partition_log = Window.partitionBy("topic", "partition").orderBy("offset", F.col("begins").isNull())
    so_far = partition_log.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    log_rows = begins.unionByName(wanted).withColumn("within", F.last("begins", ignorenulls=True).over(so_far))
    is_within = F.col("begins").isNull() & (F.col("offset") <= F.col("within.last_offset"))
    return log_rows.where(is_within).select("within.key", "offset", "request")
