"""A few rows of the driver as a file of a table, without a job of Spark's, which takes longer than such a file."""

from __future__ import annotations

import io
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from ingest.delta.data_file import ReadyFile
from ingest.jvm.classes import java_class
from ingest.spark.local_rows import arrow_table


def ready_rows(spark: SparkSession, folder: str, rows: Sequence[Mapping[str, Any]], schema: T.StructType) -> ReadyFile:
    """`rows` in a new file in `folder`, to be committed to the table there. `rows`: column → value, times aware of
    their zone; no column has a name that Parquet can't hold."""
    content = io.BytesIO()
    pq.write_table(arrow_table(rows, schema), content)
    name = f"part-{uuid.uuid4()}.parquet"
    path = java_class(spark._jvm, "org.apache.hadoop.fs.Path")(folder, name)
    stream = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()).create(path, False)
    try:
        stream.write(content.getvalue())
    finally:
        stream.close()
    return ReadyFile(name, content.tell(), len(rows), {}, {})
