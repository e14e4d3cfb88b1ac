"""DataFrames of a few rows of the driver, through Arrow: of tuples Spark would make them with Python workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_type


def local_rows(spark: SparkSession, rows: Sequence[Mapping[str, Any]], schema: T.StructType) -> DataFrame:
    """Returns `rows` as a DataFrame of one partition. `rows`: column → value, times aware of their zone."""
    return spark.createDataFrame(arrow_table(rows, schema), schema).coalesce(1)


def arrow_table(rows: Sequence[Mapping[str, Any]], schema: T.StructType) -> pa.Table:
    """Returns `rows` as an Arrow table with the types of `schema`. `rows`: column → value, times with their zone."""
    fields = [pa.field(f.name, to_arrow_type(f.dataType, timezone="UTC")) for f in schema.fields]
    return pa.Table.from_pylist([dict(row) for row in rows], schema=pa.schema(fields))
