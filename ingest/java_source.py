"""Java that this project brings, where a library can only be told by a subclass: compiled by the compiler that Spark
brings for the code it generates."""

from __future__ import annotations

from typing import Any


def compiled(jvm: Any, source: str) -> Any:
    """Janino's compiler with `source` in it: it has a class loader of its own, and the bytes of the classes by name."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(source)
    return compiler
