"""Hadoop's configuration without the origins of its settings.

Spark serializes it with every scan and write. The origin of each of a thousand settings goes with it in a gzip stream
of its own, which takes ten times as long as the settings.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

_SET_BY_SPARK = "spark.hadoop."
"""Prefix of the properties that Spark passes to Hadoop."""


def forget_origins(spark: SparkSession) -> None:
    """Removes the origins of all settings but those that Spark was given. The values stay."""
    context: Any = spark.sparkContext
    jvm, settings = context._jvm, context._jsc.hadoopConfiguration()
    # Loads the settings, and the file systems, whose classes add settings.
    jvm.org.apache.hadoop.fs.FileSystem.get(settings)
    settings.size()
    field = jvm.java.lang.Class.forName("org.apache.hadoop.conf.Configuration").getDeclaredField("updatingResource")
    field.setAccessible(True)
    given = jvm.java.util.ArrayList()
    for name, _ in context.getConf().getAll():
        if name.startswith(_SET_BY_SPARK):
            given.add(name.removeprefix(_SET_BY_SPARK))
    field.get(settings).keySet().retainAll(given)
