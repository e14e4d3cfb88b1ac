"""Columns that are computed by methods of Java objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column
from pyspark.sql import types as T

from ingest.jvm.classes import java_class
from ingest.jvm.constructors import invocation

_SQL = "org.apache.spark.sql"


def invoke(jvm: Any, target: Any, method: str, returns: T.DataType, arguments: Sequence[Column], pure: bool) -> Column:
    """Returns what `method` of `target` returns for each row. Tasks have copies of `target`, which is serializable.

    `pure`: null where any argument is null, and always the same for the same arguments. Otherwise the result is never
    null, and the method is called once for each row."""
    columns, to_seq = java_class(jvm, f"{_SQL}.classic.ExpressionUtils"), jvm.PythonUtils.toSeq
    expressions = to_seq([columns.expression(column._jc) for column in arguments])
    object_type = java_class(jvm, f"{_SQL}.types.ObjectType")(target.getClass())
    literal = java_class(jvm, f"{_SQL}.catalyst.expressions.Literal")(target, object_type)
    made = invocation(jvm, literal, method, data_type(jvm, returns), expressions, to_seq([]), pure)
    return Column(columns.column(made))


def data_type(jvm: Any, kind: T.DataType) -> Any:
    """Returns the type as an object of the JVM."""
    return java_class(jvm, f"{_SQL}.types.DataType").fromJson(kind.json())
