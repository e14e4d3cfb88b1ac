"""Files of a few rows of the driver, written without a Spark job, which would take longer than the file."""

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


def write_ready_file(
    spark: SparkSession, folder: str, rows: Sequence[Mapping[str, Any]], schema: T.StructType
) -> ReadyFile:
    """Writes `rows` to a new Parquet file in `folder`, and returns it for a commit to the table there. `rows`: column →
    value, times aware of their zone. No column may need Delta's column mapping."""
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
