"""Python functions that run in Spark's workers over batches of rows. All of the project's go through here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from ingest.causes import describe

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterable[pa.RecordBatch]]


def map_in_arrow(rows: DataFrame, function: ArrowFunction, schema: T.StructType | str) -> DataFrame:
    """Returns `function` of each task's batches. What it raises reaches the driver by its class (`causes`)."""

    def described(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from function(batches)
        except Exception as error:
            describe(error)
            raise

    return rows.mapInArrow(described, schema)
