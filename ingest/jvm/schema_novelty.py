"""Finds the changes whose images have columns or kinds of values that no image before them had.

Of a million changes a handful have, and only these need be opened to infer the table's columns. The check costs about a
seventh of opening an image.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ingest.jvm.classes import java_class
from ingest.jvm.library import tasks_have_library


def is_novel(
    spark: SparkSession, value: SparkColumn, group: tuple[SparkColumn, SparkColumn, SparkColumn]
) -> SparkColumn:
    """Returns whether the images in `value`, the bytes of a change without a schema, have to be opened to infer the
    columns of its `group` (slice, table, wrapped; only the table may be null). Null where that is unknown, and they
    have to be; not null means plain JSON that names either image once.

    Each task remembers what it has seen itself. Where tasks lack the class the result is always null."""
    if not tasks_have_library(spark.sparkContext):
        return F.lit(None).cast("boolean")
    jvm: Any = spark._jvm
    columns = [column._jc for column in (value, *group)]
    return SparkColumn(_novelty_udf(jvm).apply(jvm.PythonUtils.toSeq(columns)))


@cache
def _novelty_udf(jvm: Any) -> Any:
    return java_class(jvm, "ingest.json.SchemaNovelty").function()
