"""Parses JSON in bytes as `from_json` does, in a third of its time.

Plain JSON, which connectors mostly write, is read without Spark's parser. And Spark generates no code for `from_json`:
rows are materialised before and behind it.
"""

from __future__ import annotations

from typing import Any

from pyspark import SparkContext
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.jvm.classes import java_class
from ingest.jvm.constructors import json_evaluator
from ingest.jvm.expressions import data_type, invoke
from ingest.jvm.library import tasks_have_library

CORRUPT = "_ingest_corrupt"
"""Name of the field that holds the text of a value that can't be parsed."""
WITHOUT_LIMITS = {"maxStringLen": str(2**31 - 1), "maxNumLen": str(2**31 - 1)}
"""Options of `from_json`: by default Jackson refuses texts of more than 20 million characters, and long numbers."""


def opened(value: Column, into: T.StructType, known: bool = False) -> Column:
    """Returns the JSON object in `value`, of type `into`; null for null. `known`: each value was validated before and
    names no field twice, so that the fields of `into` suffice."""
    context: Any = SparkContext._active_spark_context
    if not tasks_have_library(context):
        return parsed(value, into)
    return invoke(context._jvm, reader(context._jvm, into, known), "read", into, (value,), pure=True)


def parsed(value: Column, into: T.StructType) -> Column:
    """Returns the same by Spark's parser alone."""
    return F.from_json(value.cast("string"), into, {"columnNameOfCorruptRecord": CORRUPT, **WITHOUT_LIMITS})


def reader(jvm: Any, into: T.StructType, known: bool = False) -> Any:
    """Returns the Java object that `opened` invokes."""
    zone = jvm.scala.Option.apply(jvm.org.apache.spark.sql.internal.SQLConf.get().sessionLocalTimeZone())
    parser = json_evaluator(jvm, jvm.PythonUtils.toScalaMap(WITHOUT_LIMITS), data_type(jvm, into), CORRUPT, zone)
    return java_class(jvm, "ingest.json.JsonReader")(plain_row(jvm, into, known), parser)


def plain_row(jvm: Any, into: T.StructType, known: bool = False) -> Any:
    """Returns the Java object that reads plain JSON; its `read` returns null where it isn't certain of the result."""
    return java_class(jvm, "ingest.json.PlainRow")(data_type(jvm, into), CORRUPT, known)
