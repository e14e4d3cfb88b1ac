"""The location of a stored row: a column that readers of a table's files can add."""

from __future__ import annotations

from pyspark.sql import types as T

LOCATION = "_ingest_location"
"""The column's name. Its fields: the name of the row's file, and the row's number in it."""
LOCATION_TYPE = T.StructType([T.StructField("file", T.StringType()), T.StructField("row", T.LongType())])
