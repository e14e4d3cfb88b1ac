"""Where a stored row lies: a column that readers of a table's files can add."""

from __future__ import annotations

from pyspark.sql import types as T

LOCATION = "_location"
"""The column: the name of the row's file, and its number in it."""
LOCATION_TYPE = T.StructType([T.StructField("file", T.StringType()), T.StructField("row", T.LongType())])
