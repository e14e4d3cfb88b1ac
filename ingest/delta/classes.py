"""Delta's classes in the JVM, each looked up once: py4j looks a class up anew wherever its name is written."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cache, cached_property
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ingest.delta.data_file import ReadyFile
from ingest.jvm import constructors
from ingest.jvm.classes import java_class, scala_object

_LIST_OF = 10
"""Items that Java's `List.of` takes, each as an argument."""


class Operation(StrEnum):
    """What a commit does, as `DESCRIBE HISTORY` names it."""

    WRITE = "WRITE"
    OPTIMIZE = "OPTIMIZE"
    DELETE = "DELETE"


class DeltaClasses:
    """Makes the objects of Delta's transactions. Those returned are Java's or Scala's: see their Scaladoc."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self._spark = spark
        self._jvm = jvm
        self._delta = jvm.org.apache.spark.sql.delta

    def log(self, path: str) -> Any:
        """Returns the `DeltaLog` of the table at `path`."""
        return self._logs.forTable(self._spark._jsparkSession, path)

    @cached_property
    def _logs(self) -> Any:
        return self._delta.DeltaLog

    @cached_property
    def none(self) -> Any:
        """Returns Scala's empty `Option`."""
        return self._option.empty()

    def some(self, value: Any) -> Any:
        return self._option.apply(value)

    def some_long(self, value: int) -> Any:
        """Returns an `Option` of a Java `Long`. Py4j would pass a small Python number as an `Integer`."""
        numbers = self._spark._sc._gateway.new_array(self._jvm.long, 1)  # type: ignore[union-attr]
        numbers[0] = value
        return scala_object(self._jvm.scala, "Predef").wrapLongArray(numbers).headOption()

    @cached_property
    def _option(self) -> Any:
        return self._jvm.scala.Option

    @cached_property
    def empty_map(self) -> Any:
        """Returns Scala's empty `Map`."""
        return scala_object(self._jvm.scala.collection.immutable, "Map").empty()

    def sequence(self, items: Sequence[Any]) -> Any:
        """Returns a Scala `Seq` of objects of the JVM. Py4j would pass a list with one call per item."""
        if not items:
            return self.empty_sequence
        parts = [self._list(*items[at : at + _LIST_OF]) for at in range(0, len(items), _LIST_OF)]
        if len(parts) == 1:
            return self._sequence(parts[0])
        whole = java_class(self._jvm, "java.util.ArrayList")()
        for part in parts:
            whole.addAll(part)
        return self._sequence(whole)

    @cached_property
    def empty_sequence(self) -> Any:
        """Returns Scala's empty `Seq`."""
        return self._sequence(self._list())

    @cached_property
    def _list(self) -> Any:
        return self._jvm.java.util.List.of

    @cached_property
    def _sequence(self) -> Any:
        return self._jvm.PythonUtils.toSeq

    @cached_property
    def file_names(self) -> Any:
        """Returns Delta's `FileNames`: the paths of a log's files."""
        return scala_object(self._delta.util, "FileNames")

    def parse_action(self, line: str) -> Any:
        """Returns the `Action` of a line of a commit."""
        return self._action.fromJson(line)

    @cached_property
    def _action(self) -> Any:
        return scala_object(self._delta.actions, "Action")

    def retention_milliseconds(self, metadata: Any) -> int:
        """Returns how long a table keeps its removed files."""
        return int(self._logs.tombstoneRetentionMillis(metadata))

    @cached_property
    def minute_granularity(self) -> Any:
        """Returns the granularity to which Delta rounds the time before which it deletes files of a log."""
        return scala_object(self._delta, "TruncationGranularity").MINUTE()

    def metadata(self, frame: DataFrame, properties: Mapping[str, str]) -> Any:
        """Returns the `Metadata` of a new table with the columns of `frame`, all nullable."""
        schema = frame._jdf.schema().asNullable().json()
        table_id, configuration, created = str(uuid.uuid4()), self._map(properties), self._now()
        partitions, no_options = self.empty_sequence, self.empty_map
        return constructors.metadata(self._jvm, table_id, schema, partitions, configuration, created, no_options)

    def with_columns(self, metadata: Any, columns: Any, properties: Mapping[str, str]) -> Any:
        """Returns `metadata` with the given columns (a type in JSON) and, besides its own, the given properties."""
        before = {pair._1(): pair._2() for pair in as_list(metadata.configuration().toSeq())}
        return _copied(metadata, schemaString=json.dumps(columns), configuration=self._map({**before, **properties}))

    def _map(self, pairs: Mapping[str, str]) -> Any:
        """Returns a Scala `Map` of `pairs`."""
        java_map = java_class(self._jvm, "java.util.HashMap")()
        for key, value in pairs.items():
            java_map.put(key, value)
        return self._jvm.PythonUtils.toScalaMap(java_map)

    def set_transaction(self, application: str, version: int) -> Any:
        """Returns the action that sets an application's version."""
        return constructors.set_transaction(self._jvm, application, version, self._now())

    def operation(self, kind: Operation, user_metadata: Mapping[str, Any] | None) -> Any:
        """Returns the operation of a commit, one of Delta's own: after another one Delta recomputes the table's state.
        Only a write has user metadata."""
        none = self.none
        if kind is Operation.OPTIMIZE:
            return constructors.optimize_operation(self._jvm, self.empty_sequence, none)
        if kind is Operation.DELETE:
            return constructors.delete_operation(self._jvm, self.empty_sequence)
        metadata = none if user_metadata is None else self.some(json.dumps(user_metadata))
        return constructors.write_operation(self._jvm, self._append, metadata, none)

    @cached_property
    def _append(self) -> Any:
        return self._jvm.org.apache.spark.sql.SaveMode.Append

    def register_metrics(self, transaction: Any) -> None:
        """Registers the metrics that Delta requires of a transaction that commits a DELETE. All are 0: an erasure
        counts what it removes in its own evidence."""
        session = self._spark._jsparkSession
        metrics = java_class(self._jvm, "org.apache.spark.sql.execution.metric.SQLMetrics")
        java_map = java_class(self._jvm, "java.util.HashMap")()
        for name in as_list(scala_object(self._delta, "DeltaOperationMetrics").DELETE().toSeq()):
            java_map.put(name, metrics.createMetric(session.sparkContext(), name))
        transaction.registerSQLMetrics(session, self._jvm.PythonUtils.toScalaMap(java_map))

    def add_file(self, file: ReadyFile) -> Any:
        """Returns the `AddFile` of a file that is written already. Its name must need no escaping in a URI."""
        now = int(time.time() * 1000)
        return constructors.add_file(self._jvm, file.name, self.empty_map, file.size, now, file.statistics, self.none)

    def without_data_change(self, added: Any) -> Any:
        """Returns an `AddFile` of rows that were in other files before."""
        return _copied(added, dataChange=False)

    def remove_without_data_change(self, file: Any) -> Any:
        """Returns the `RemoveFile` of an `AddFile` whose rows are in other files now."""
        return file.removeWithTimestamp(int(time.time() * 1000), False)

    def _now(self) -> Any:
        return self.some(int(time.time() * 1000))


@cache
def delta_classes(spark: SparkSession) -> DeltaClasses:
    """Returns the session's `DeltaClasses`."""
    return DeltaClasses(spark)


def as_list(sequence: Any) -> list[Any]:
    """Returns a Scala `Seq` as a list."""
    return [sequence.apply(i) for i in range(sequence.size())]


def _copied(product: Any, **changed: Any) -> Any:
    """Returns a copy of a Scala case class with `changed` fields."""
    names = as_list(product.productElementNames().toSeq())
    values = [product.productElement(i) for i in range(product.productArity())]
    return product.copy(*(changed.get(name, value) for name, value in zip(names, values, strict=True)))
