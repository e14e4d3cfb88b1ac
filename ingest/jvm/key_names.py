"""Finds the names of the columns in records' keys by Java, which compares keys of one form instead of parsing each."""

from __future__ import annotations

from functools import cache
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import SparkSession

from ingest.jvm.classes import java_class
from ingest.jvm.library import tasks_have_library


def names_in_key(spark: SparkSession, key: SparkColumn) -> SparkColumn | None:
    """Returns the names of the columns in `key`, the bytes of a record's key, as a JSON array: `[]` for a null key,
    null for one that names no columns. None where tasks lack the class."""
    if not tasks_have_library(spark.sparkContext):
        return None
    jvm: Any = spark._jvm
    return SparkColumn(_names_udf(jvm).apply(jvm.PythonUtils.toSeq([key._jc])))


@cache
def _names_udf(jvm: Any) -> Any:
    return java_class(jvm, "ingest.batches.KeyNames").function()
