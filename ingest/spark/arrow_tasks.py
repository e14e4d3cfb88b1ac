"""Python functions that run in Spark's workers over batches of rows. All of the project's go through here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyspark.sql import DataFrame, GroupedData
from pyspark.sql import types as T

from ingest.jvm.causes import describe

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterable[pa.RecordBatch]]


def map_in_arrow(rows: DataFrame, function: ArrowFunction, schema: T.StructType | str) -> DataFrame:
    """Returns the rows of `function` over each task's batches. The driver gets its exceptions by class (`causes`)."""

    def described(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with _described():
            yield from function(batches)

    return rows.mapInArrow(described, schema)


def cogroup_in_arrow(
    one: GroupedData, other: GroupedData, function: Callable[[pa.Table, pa.Table], pa.Table], schema: T.StructType
) -> DataFrame:
    """Returns the rows of `function` over both tables of each group. The driver gets its exceptions by class."""

    def described(left: pa.Table, right: pa.Table) -> pa.Table:
        with _described():
            return function(left, right)

    return one.cogroup(other).applyInArrow(described, schema)


@contextmanager
def _described() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        describe(error)
        raise
