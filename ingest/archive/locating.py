"""Which objects hold given records, by the offsets between which each lies."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F


def located(objects: DataFrame, coordinates: DataFrame) -> DataFrame:
    """`coordinates` (`topic`, `partition`, `offset`, `request`) → `key`, `offset`, `request` of those that lie within
    an object. `objects`: rows of `StoredObject`, those of a topic partition one after the other.

    Each partition's log is walked through once: a join by ranges would hold every record against every object."""
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
