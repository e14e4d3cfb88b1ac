"""Columns that are computed by methods of Java objects, and accumulators that are updated by them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import types as T

from ingest.jvm.classes import java_class
from ingest.jvm.constructors import invocation, object_literal

_SQL = "org.apache.spark.sql"


def invoke(jvm: Any, target: Any, method: str, returns: T.DataType, arguments: Sequence[Column], pure: bool) -> Column:
    """Returns what `method` of `target` returns for each row. Tasks have copies of `target`, which is serializable.

    `pure`: null where any argument is null, and always the same for the same arguments. Otherwise the result is never
    null, and the method is called once for each row."""
    columns, to_seq = java_class(jvm, f"{_SQL}.classic.ExpressionUtils"), jvm.PythonUtils.toSeq
    expressions = to_seq([columns.expression(column._jc) for column in arguments])
    literal = object_literal(jvm, target)
    made = invocation(jvm, literal, method, data_type(jvm, returns), expressions, to_seq([]), pure)
    return Column(columns.column(made))


def data_type(jvm: Any, kind: T.DataType) -> Any:
    """Returns the type as an object of the JVM."""
    return java_class(jvm, f"{_SQL}.types.DataType").fromJson(kind.json())


class JavaAccumulator:
    """A Spark accumulator of a class of the library: tasks update it, and Spark adds a task's share when the task
    succeeds."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        """`name`: of the class, an `AccumulatorV2` with a method `toJson`."""
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._java = java_class(jvm, name)()
        spark._jsc.sc().register(self._java)

    def updated_by(self, method: str, returns: T.DataType, arguments: Sequence[Column]) -> Column:
        """Returns a column that calls `method` once for each row for which it is evaluated. Never null."""
        return invoke(self._jvm, self._java, method, returns, arguments, pure=False)

    def to_json(self) -> str | None:
        """Returns the accumulated value as JSON; None if the class has no value to tell."""
        text = self._java.toJson()
        return None if text is None else str(text)
