"""Java that this project brings, where a library can only be told by a class: compiled by the compiler that Spark
brings for the code it generates."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import Column
from pyspark.sql import types as T

from ingest.jvm.classes import java_class

_ONE_AT_A_TIME = Lock()
_LOCAL = re.compile(r"local(\[.*\])?")
_SQL = "org.apache.spark.sql"
_FUNCTIONS = f"{_SQL}.api.java.UDF4"


def reaches_tasks(context: Any) -> bool:
    """Whether the tasks of a Spark context run in its own JVM: executors beside it don't know what is defined there."""
    return _LOCAL.fullmatch(str(context.master)) is not None


def compiled(jvm: Any, source: str) -> Any:
    """Janino's compiler with `source` in it: it has a class loader of its own, and the bytes of the classes by name."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(source)
    return compiler


def define(jvm: Any, source: str, beside: str, names: tuple[str, ...]) -> None:
    """The classes `names` of `source`, one that another is made of before it, in the loader of the class `beside`,
    which is of their package: by their names they are found from everywhere in this JVM. Once in it: it may have
    several sessions, one after the other, and what it has stays as it is."""
    package, _, _ = beside.rpartition(".")
    whole = [f"{package}.{name}" for name in names]
    with _ONE_AT_A_TIME:
        if _has(jvm, whole[-1]):
            return
        handles = jvm.java.lang.invoke.MethodHandles
        classes = compiled(jvm, source).getBytecodes()
        lookup = handles.privateLookupIn(_named(jvm, beside), handles.lookup())
        for name in whole:
            lookup.defineClass(classes[name])


def define_function(jvm: Any, file: Path, names: tuple[str, ...]) -> None:
    """The classes `names` of a Java file, which says to be of the package of Spark's functions."""
    define(jvm, file.read_text(encoding="utf-8"), _FUNCTIONS, names)


def called(jvm: Any, target: Any, method: str, returns: T.DataType, on: Sequence[Column], pure: bool) -> Column:
    """What `target`, an object of which tasks have copies, answers to `method` with these columns. `pure`: null where
    any of them is, and always the same; otherwise it is never null, and asked once for each row."""
    columns, listed = java_class(jvm, f"{_SQL}.classic.ExpressionUtils"), jvm.PythonUtils.toSeq
    of = listed([columns.expression(column._jc) for column in on])
    kind_of_target = java_class(jvm, f"{_SQL}.types.ObjectType")(target.getClass())
    literal = java_class(jvm, f"{_SQL}.catalyst.expressions.Literal")(target, kind_of_target)
    invoke = java_class(jvm, f"{_SQL}.catalyst.expressions.objects.Invoke")
    made = invoke(literal, method, type_in(jvm, returns), of, listed([]), pure, pure, pure)
    return Column(columns.column(made))


def type_in(jvm: Any, kind: T.DataType) -> Any:
    """The type as the JVM has it."""
    return java_class(jvm, f"{_SQL}.types.DataType").fromJson(kind.json())


def _named(jvm: Any, name: str) -> Any:
    """The class, from the jars of the session too, which may have come with it."""
    return jvm.java.lang.Class.forName(name, True, jvm.java.lang.Thread.currentThread().getContextClassLoader())


def _has(jvm: Any, name: str) -> bool:
    try:
        _named(jvm, name)
    except Py4JJavaError:
        return False
    return True
