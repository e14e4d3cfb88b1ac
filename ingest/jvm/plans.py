"""DataFrames as logical plans of the JVM."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ingest.jvm.classes import java_class


def frame_of(spark: SparkSession, plan: Any) -> DataFrame:
    """Returns the frame of a logical plan of the JVM. A command is executed."""
    # The Scala object: of a class, py4j looks a static method up at each call.
    datasets = java_class(spark._jvm, "org.apache.spark.sql.classic.Dataset$.MODULE$")
    return DataFrame(datasets.ofRows(spark._jsparkSession, plan), spark)


def unpersist_checkpoint(rows: DataFrame) -> None:
    """Deletes the rows of a frame that `localCheckpoint` returned. Frames derived from it become invalid."""
    rows._jdf.queryExecution().logical().rdd().unpersist(False)
