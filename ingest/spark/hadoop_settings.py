"""Hadoop's settings go with every scan and every write. With each of the thousand goes where it was set, in a gzip
stream of its own: that takes ten times as long as the settings themselves.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

_SET_BY_SPARK = "spark.hadoop."
"""How the name of a property begins that Spark hands on to Hadoop."""


def forget_origins(spark: SparkSession) -> None:
    """Of all settings but those that Spark was told. Their values stay. Whoever asks hears that nobody knows."""
    context: Any = spark.sparkContext
    jvm, settings = context._jvm, context._jsc.hadoopConfiguration()
    settings.size()  # Only now they are read.
    field = jvm.java.lang.Class.forName("org.apache.hadoop.conf.Configuration").getDeclaredField("updatingResource")
    field.setAccessible(True)
    told = jvm.java.util.ArrayList()
    for name, _ in context.getConf().getAll():
        if name.startswith(_SET_BY_SPARK):
            told.add(name.removeprefix(_SET_BY_SPARK))
    field.get(settings).keySet().retainAll(told)
