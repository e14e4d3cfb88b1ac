"""A few rows of the driver as a DataFrame: by Arrow, because Spark would start Python workers for tuples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_type


def local_rows(spark: SparkSession, rows: Sequence[Mapping[str, Any]], schema: T.StructType) -> DataFrame:
    """`rows`: column → value, times aware of their zone. One partition."""
    return spark.createDataFrame(arrow_table(rows, schema), schema).coalesce(1)


def arrow_table(rows: Sequence[Mapping[str, Any]], schema: T.StructType) -> pa.Table:
    """The same as Arrow has it."""
    fields = [pa.field(f.name, to_arrow_type(f.dataType, timezone="UTC")) for f in schema.fields]
    return pa.Table.from_pylist([dict(row) for row in rows], schema=pa.schema(fields))
