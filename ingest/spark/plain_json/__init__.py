"""JSON in bytes, read as `from_json` reads it: what is plain, as most is that a connector writes, without a parser.

That takes a third of the time. And `from_json` is nothing that Spark generates code for: every row would be written
down before it and behind it.
"""

from __future__ import annotations

from typing import Any

from pyspark import SparkContext
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.jvm.classes import java_class
from ingest.jvm.expressions import data_type, invoke
from ingest.jvm.library import tasks_have_library

CORRUPT = "_ingest_corrupt"
"""The field of a type that holds the text of what can't be read by it."""
WITHOUT_LIMITS = {"maxStringLen": str(2**31 - 1), "maxNumLen": str(2**31 - 1)}
"""Options of `from_json`: Jackson alone refuses a text of more than 20 million characters, and a long number."""


def opened(value: Column, into: T.StructType, known: bool = False) -> Column:
    """The object in these bytes; null for null. `known`: each has been read before, is whole, and names none of its
    fields twice; what isn't asked for then needn't be read again."""
    context: Any = SparkContext._active_spark_context
    if not tasks_have_library(context):
        return parsed(value, into)
    return invoke(context._jvm, reader(context._jvm, into, known), "read", into, (value,), pure=True)


def parsed(value: Column, into: T.StructType) -> Column:
    """The same by Spark's parser alone."""
    return F.from_json(value.cast("string"), into, {"columnNameOfCorruptRecord": CORRUPT, **WITHOUT_LIMITS})


def reader(jvm: Any, into: T.StructType, known: bool = False) -> Any:
    """What `opened` asks."""
    zone = jvm.scala.Option.apply(jvm.org.apache.spark.sql.internal.SQLConf.get().sessionLocalTimeZone())
    parsing = jvm.org.apache.spark.sql.catalyst.expressions.json.JsonToStructsEvaluator
    parser = parsing(jvm.PythonUtils.toScalaMap(WITHOUT_LIMITS), data_type(jvm, into), CORRUPT, zone, False)
    return java_class(jvm, "ingest.json.JsonReader")(plain_row(jvm, into, known), parser)


def plain_row(jvm: Any, into: T.StructType, known: bool = False) -> Any:
    """What reads it without a parser: its `read` is null wherever it isn't certain that one would make the same."""
    return java_class(jvm, "ingest.json.PlainRow")(data_type(jvm, into), CORRUPT, known)
