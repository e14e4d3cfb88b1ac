"""Delta's classes in the JVM that write deletion vectors, each looked up once (see `delta.classes`)."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession

from ingest.delta.classes import as_list, delta_classes
from ingest.jvm import constructors
from ingest.jvm.classes import java_class, scala_object


@dataclass(frozen=True)
class RowNumbers:
    """Rows of one file: their number, and Delta's bitmap of their positions in the file."""

    count: int
    bitmap: bytes

    @classmethod
    def from_json(cls, count: int, bitmap: str) -> RowNumbers:
        """Returns the rows of their JSON form, in which the bitmap is base64."""
        return cls(count, base64.b64decode(bitmap))


class VectorStore:
    """Writes deletion vectors, which lie in files of their own in the table's folder."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._spark = spark
        self._delta = jvm.org.apache.spark.sql.delta
        self._options = delta_classes(spark)

    def write_for_rows(self, rows: DataFrame, log: Any) -> list[Any]:
        """Writes vectors by a Spark job. Returns a `DeletionVectorResult` for each file. `rows`: the file's name
        (`filePath`), the row's number in it (`rowIndexCol`), and the file's present vector (`deletionVectorId`)."""
        return as_list(self._generator.buildDeletionVectors(self._spark._jsparkSession, rows._jdf, log, 0))

    def write_for_files(self, deleted: Iterable[tuple[str, Any, RowNumbers]], log: Any) -> list[Any]:
        """Writes vectors without a Spark job. Returns a `DeletionVectorResult` for each file. `deleted`: the file's
        name, its present vector or None, and the rows to delete."""
        folder = log.dataPath()
        store = self._stores.createInstance(log.newDeltaHadoopConf())
        opened = self._writers.createWriter(store, store.pathWithFileSystem(folder), "")
        writer = opened._1()
        # The vectors are written when the writer is closed: an error of that has to be raised here.
        try:
            context = constructors.vector_context(self._jvm, store, writer, folder, opened._2(), "")
            results = [self._writers.storeBitmapAndGenerateResult(context, self._vector_data(*d)) for d in deleted]
        finally:
            writer.close()
        return results

    def _vector_data(self, name: str, vector: Any, rows: RowNumbers) -> Any:
        before = None if vector is None else vector.serializeToBase64()
        return constructors.vector_data(self._jvm, name, self._options.some(before), rows.bitmap, rows.count)

    def bitmap(self, numbers: Column) -> Column:
        """Returns Delta's aggregate of row numbers: their `cardinality`, the `last` one, and the `bitmap` of all."""
        columns = java_class(self._jvm, "org.apache.spark.sql.classic.ExpressionUtils")
        aggregator = constructors.row_bitmap(self._jvm, columns.expression(numbers._jc))
        return Column(columns.column(aggregator.toAggregateExpression()))

    def touched(self, name: str, added: Any, vector: Any, count: int) -> Any:
        """Returns Delta's form of a file with a new vector. `count`: number of rows that the vector adds."""
        return constructors.touched_file(self._jvm, name, added, vector, count)

    @cached_property
    def _generator(self) -> Any:
        return scala_object(self._delta.commands, "DeletionVectorBitmapGenerator")

    @cached_property
    def _writers(self) -> Any:
        return scala_object(self._delta.commands, "DeletionVectorWriter")

    @cached_property
    def _stores(self) -> Any:
        return scala_object(self._delta.storage.dv, "DeletionVectorStore")


@cache
def vector_store(spark: SparkSession) -> VectorStore:
    """Returns the session's `VectorStore`."""
    return VectorStore(spark)
