"""Delta's own classes in the JVM, each looked up once: py4j asks for a class by name again wherever it is written."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from ingest.delta.data_file import ReadyFile
from ingest.jvm.classes import java_class, scala_object

_AT_ONCE = 10
"""So many items does Java's `List.of` take, each as an argument of its own."""


class DeltaClasses:
    """What a transaction is made of. The objects are Java's or Scala's; which, their Scaladoc tells."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self._spark = spark
        self._jvm = jvm
        self._delta = jvm.org.apache.spark.sql.delta

    def log(self, path: str) -> Any:
        """`DeltaLog` of the table at `path`."""
        return self._logs.forTable(self._spark._jsparkSession, path)

    @cached_property
    def _logs(self) -> Any:
        return self._delta.DeltaLog

    @cached_property
    def none(self) -> Any:
        """Scala's empty `Option`."""
        return self._option.empty()

    def some(self, value: Any) -> Any:
        return self._option.apply(value)

    def some_long(self, value: int) -> Any:
        """`some` of a Java `Long`, which a small number from Python would not be."""
        numbers = self._spark._sc._gateway.new_array(self._jvm.long, 1)  # type: ignore[union-attr]
        numbers[0] = value
        return scala_object(self._jvm.scala, "Predef").wrapLongArray(numbers).headOption()

    @cached_property
    def _option(self) -> Any:
        return self._jvm.scala.Option

    @cached_property
    def empty(self) -> Any:
        """Scala's empty `Map`."""
        return scala_object(self._jvm.scala.collection.immutable, "Map").empty()

    def sequence(self, items: Sequence[Any]) -> Any:
        """Scala's `Seq` of what lies in the JVM. Py4j hands over a list by a call for each of its items."""
        if not items:
            return self.nothing
        parts = [self._list(*items[at : at + _AT_ONCE]) for at in range(0, len(items), _AT_ONCE)]
        if len(parts) == 1:
            return self._sequence(parts[0])
        whole = java_class(self._jvm, "java.util.ArrayList")()
        for part in parts:
            whole.addAll(part)
        return self._sequence(whole)

    @cached_property
    def nothing(self) -> Any:
        """Scala's empty `Seq`."""
        return self._sequence(self._list())

    @cached_property
    def _list(self) -> Any:
        return self._jvm.java.util.List.of

    @cached_property
    def _sequence(self) -> Any:
        return self._jvm.PythonUtils.toSeq

    @cached_property
    def commit_files(self) -> Any:
        """Names of the files of a log."""
        return scala_object(self._delta.util, "FileNames")

    def action(self, line: str) -> Any:
        """What a line of a commit says."""
        return self._action.fromJson(line)

    @cached_property
    def _action(self) -> Any:
        return scala_object(self._delta.actions, "Action")

    def kept_milliseconds(self, metadata: Any) -> int:
        """For how long a table keeps files that have gone."""
        return int(self._logs.tombstoneRetentionMillis(metadata))

    @cached_property
    def to_the_minute(self) -> Any:
        """How exactly a time is meant by which files of a log go."""
        return scala_object(self._delta, "TruncationGranularity").MINUTE()

    def metadata(self, frame: DataFrame, properties: Mapping[str, str]) -> Any:
        """Of a new table with the columns of `frame`, any of which may be null."""
        schema = frame._jdf.schema().asNullable().json()
        actions = self._delta.actions
        parquet, nowhere = actions.Format("parquet", self.empty), self.nothing
        told = self._map(properties)
        return actions.Metadata(str(uuid.uuid4()), None, None, parquet, schema, nowhere, told, self._now())

    def with_columns(self, metadata: Any, columns: T.StructType, properties: Mapping[str, str]) -> Any:
        """Of a table that has other columns from here on."""
        before = {pair._1(): pair._2() for pair in items(metadata.configuration().toSeq())}
        schema = json.dumps(_still_mapped(columns.jsonValue(), json.loads(metadata.schemaString())))
        return _copied(metadata, schemaString=schema, configuration=self._map({**before, **properties}))

    def _map(self, pairs: Mapping[str, str]) -> Any:
        """Scala's `Map` of them."""
        made = java_class(self._jvm, "java.util.HashMap")()
        for key, value in pairs.items():
            made.put(key, value)
        return self._jvm.PythonUtils.toScalaMap(made)

    def mark(self, application: str, version: int) -> Any:
        """How far an application has come."""
        return self._marks(application, version, self._now())

    @cached_property
    def _marks(self) -> Any:
        return self._delta.actions.SetTransaction

    def write(self, told: Mapping[str, Any] | None) -> Any:
        """The operation of a commit: a write, for of one that it doesn't know Delta computes the table's state anew."""
        none = self.none
        metadata = none if told is None else self.some(json.dumps(told))
        return self._write(self._append, none, none, metadata, none, none, none, none, none)

    @cached_property
    def _append(self) -> Any:
        return self._jvm.org.apache.spark.sql.SaveMode.Append

    @cached_property
    def _write(self) -> Any:
        return getattr(self._delta, "DeltaOperations$Write")

    def added(self, file: ReadyFile) -> Any:
        """The `AddFile` of a file that is there already, whose name needs no escaping in a URI."""
        now, none = int(time.time() * 1000), None
        told = (file.name, self.empty, file.size, now, True, file.statistics)
        return self._delta.actions.AddFile(*told, none, none, *[self.none] * 5)

    def unchanged(self, added: Any) -> Any:
        """An `AddFile` whose rows were there before, in other files."""
        return _copied(added, dataChange=False)

    def unchanged_without(self, file: Any) -> Any:
        """The `RemoveFile` of an `AddFile` whose rows are in other files now."""
        return file.removeWithTimestamp(int(time.time() * 1000), False)

    def _now(self) -> Any:
        return self.some(int(time.time() * 1000))


@cache
def delta_classes(spark: SparkSession) -> DeltaClasses:
    """One per session."""
    return DeltaClasses(spark)


def items(sequence: Any) -> list[Any]:
    """A Scala `Seq` as a list."""
    return [sequence.apply(i) for i in range(sequence.size())]


def _still_mapped(columns: Any, before: Any) -> Any:
    """Returns a type, as JSON has it, whose fields keep the ids and physical names that they had `before`: a column
    that gets others is another column for Delta."""
    if not isinstance(columns, dict) or not isinstance(before, dict) or columns["type"] != before["type"]:
        return columns
    if columns["type"] != "struct":
        parts = [part for part in ("elementType", "keyType", "valueType") if part in columns]
        return columns | {part: _still_mapped(columns[part], before[part]) for part in parts}
    known = {f["name"]: f for f in before["fields"]}
    return columns | {"fields": [_still_mapped_field(f, known.get(f["name"])) for f in columns["fields"]]}


def _still_mapped_field(field: dict[str, Any], before: dict[str, Any] | None) -> dict[str, Any]:
    if before is None:
        return field
    kept = {k: v for k, v in before["metadata"].items() if k.startswith("delta.columnMapping.")}
    return field | {"type": _still_mapped(field["type"], before["type"]), "metadata": field["metadata"] | kept}


def _copied(product: Any, **changed: Any) -> Any:
    """A Scala case class with other values in some fields."""
    names = items(product.productElementNames().toSeq())
    values = [product.productElement(i) for i in range(product.productArity())]
    return product.copy(*(changed.get(name, value) for name, value in zip(names, values, strict=True)))
