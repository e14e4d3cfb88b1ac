"""Delta's own classes in the JVM by which it writes deletion vectors, each looked up once (`delta_jvm` says why)."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession

from ingest.delta.classes import delta_classes, items
from ingest.jvm.classes import scala_object


@dataclass(frozen=True)
class RowNumbers:
    """Of rows of one file: how many there are, and Delta's bitmap of their numbers in it."""

    count: int
    bitmap: bytes

    @classmethod
    def told(cls, count: int, bitmap: str) -> RowNumbers:
        """As JSON has them."""
        return cls(count, base64.b64decode(bitmap))


class VectorStore:
    """Vectors lie in files beside those of the table. A `DeletionVectorResult` tells of a file which is its new one."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._spark = spark
        self._delta = jvm.org.apache.spark.sql.delta
        self._options = delta_classes(spark)

    def of_rows(self, rows: DataFrame, log: Any) -> list[Any]:
        """Of rows by the name of their file (`filePath`), their number in it (`rowIndexCol`) and what is deleted of the
        file already (`deletionVectorId`): for each file a `DeletionVectorResult` of both. A job of Spark's."""
        return items(self._generator.buildDeletionVectors(self._spark._jsparkSession, rows._jdf, log, 0))

    def of_files(self, gone: Iterable[tuple[str, Any, RowNumbers]], log: Any) -> list[Any]:
        """The same of the names of files, the vector that each has, and its rows that go."""
        folder = log.dataPath()
        store = self._stores.createInstance(log.newDeltaHadoopConf())
        opened = self._writers.createWriter(store, store.pathWithFileSystem(folder), "")
        writer = opened._1()
        # Not until it is closed are they written: what fails then fails here.
        try:
            context = self._context(store, writer, folder, opened._2(), "")
            made = [self._writers.storeBitmapAndGenerateResult(context, self._told(*told)) for told in gone]
        finally:
            writer.close()
        return made

    def _told(self, name: str, vector: Any, rows: RowNumbers) -> Any:
        before = None if vector is None else vector.serializeToBase64()
        return self._data(name, self._options.some(before), rows.bitmap, rows.count)

    def bitmap(self, numbers: Column) -> Column:
        """Delta's aggregate of row numbers: their `cardinality`, the `last` one, and the `bitmap` of all."""
        classes: Any = self._jvm.org.apache.spark.sql
        columns, one = classes.classic.ExpressionUtils, numbers
        aggregator = classes.catalyst.expressions.aggregation.BitmapAggregator
        made = aggregator(columns.expression(one._jc), 0, 0, "Portable").toAggregateExpression()
        return Column(columns.column(made))

    @cached_property
    def touched(self) -> Any:
        """The class of a file with a new vector: file, `AddFile`, vector, rows that it adds."""
        return self._delta.commands.TouchedFileWithDV

    @cached_property
    def _generator(self) -> Any:
        return scala_object(self._delta.commands, "DeletionVectorBitmapGenerator")

    @cached_property
    def _writers(self) -> Any:
        return scala_object(self._delta.commands, "DeletionVectorWriter")

    @cached_property
    def _context(self) -> Any:
        return getattr(self._delta.commands, "DeletionVectorWriter$DeletionVectorMapperContext")

    @cached_property
    def _data(self) -> Any:
        return self._delta.commands.DeletionVectorData

    @cached_property
    def _stores(self) -> Any:
        return scala_object(self._delta.storage.dv, "DeletionVectorStore")


@cache
def vector_store(spark: SparkSession) -> VectorStore:
    """One per session."""
    return VectorStore(spark)
