"""Which changes tell anything of the shape of their table's rows that none before them did.

Of a million changes a handful do, and a shape is joined out of whatever brings something new: the others needn't be
opened for it. In bulk, to see that costs about a seventh of opening them.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ingest.jvm.sources import define_function, reaches_tasks
from ingest.spark.plain_json import tokens


def news(spark: SparkSession, value: SparkColumn, group: tuple[SparkColumn, SparkColumn, SparkColumn]) -> SparkColumn:
    """Whether the images in `value`, the bytes of a change without a schema, have to be opened to know the shape of all
    in its `group` (slice, table, and whether it is wrapped; only the table may be null). Null where that isn't known:
    they have to be. What is known is plain JSON that names either image once.

    Each task knows what it has seen itself. Executors beside this JVM don't know its classes: there nothing is known.
    """
    if not reaches_tasks(spark.sparkContext):
        return F.lit(None).cast("boolean")
    jvm: Any = spark._jvm
    columns = [column._jc for column in (value, *group)]
    return SparkColumn(_asked(jvm).apply(jvm.PythonUtils.toSeq(columns)))


def asking(jvm: Any) -> Any:
    """The class that asks it, for who asks it value by value."""
    tokens(jvm)
    define_function(jvm, Path(__file__).with_name("ImageNews.java"), ("Place", "ImageNews"))
    return jvm.org.apache.spark.sql.api.java.ImageNews


@cache
def _asked(jvm: Any) -> Any:
    boolean = jvm.org.apache.spark.sql.types.DataTypes.BooleanType
    return jvm.functions.udf(asking(jvm)(), boolean).asNondeterministic()
