"""Reads given files of a table through a file index of their own.

Delta's index filters its files by a query in every plan, and by two if some have deletion vectors: as long as planning
the rest, and longer the more files there are. The subclass here returns the files as they are.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.delta.classes import delta_classes
from ingest.internal_columns import LOCATION
from ingest.jvm.classes import java_class, static_method
from ingest.jvm.constructors import batch_file_index, logical_relation
from ingest.jvm.library import has_library
from ingest.jvm.plans import frame_of
from ingest.spark.prepared import Files, Query, scanned


def rows_of(spark: SparkSession, log: Any, snapshot: Any, actions: Sequence[Any]) -> DataFrame:
    """Returns the rows of `AddFile`s of a table, with `_metadata`. `snapshot`: one of the table's."""
    return _rows(spark, log, snapshot, _index(spark, log, snapshot, actions))


def run_prepared_on(
    spark: SparkSession,
    log: Any,
    snapshot: Any,
    actions: Sequence[Any],
    marked: bool,
    query: Query,
    by: tuple[Hashable, ...],
) -> DataFrame:
    """Returns `query(*by, rows)` of the rows of `AddFile`s, computed by one task. The query must work row by row; it is
    planned once for each `by` and metadata of the table. `marked`: some file has a deletion vector, which needs a plan
    of its own."""
    index = _index(spark, log, snapshot, actions)
    like = static_method(spark._jvm, "java.util.List", "of")(str(log.dataPath()), snapshot.metadata(), marked)
    return scanned(query, by, Files(spark, like, index, lambda: _rows(spark, log, snapshot, index)))


def located(rows: DataFrame) -> DataFrame:
    """Returns `rows` with their `LOCATION`, which their `_metadata` holds."""
    at = F.struct(F.col("_metadata.file_name").alias("file"), F.col("_metadata.row_index").alias("row"))
    return rows.select("*", at.alias(LOCATION))


def _index(spark: SparkSession, log: Any, snapshot: Any, actions: Sequence[Any]) -> Any:
    """Returns Spark's `FileIndex` of `AddFile`s."""
    files = delta_classes(spark).sequence(actions)
    if has_library(spark.sparkContext):
        index = java_class(spark._jvm, "ingest.delta.FixedFileIndex")
        return index(spark._jsparkSession, files, log, log.dataPath(), snapshot)
    return batch_file_index(spark, files, log, snapshot)


def _rows(spark: SparkSession, log: Any, snapshot: Any, index: Any) -> DataFrame:
    relation = log.buildHadoopFsRelationWithFileIndex(snapshot, index, delta_classes(spark).none, True)
    return frame_of(spark, logical_relation(spark._jvm, relation))
