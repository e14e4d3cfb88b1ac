"""Classes of the JVM by their names. Py4j looks for each part of a name as a class in all jars, each time it is written
down: a millisecond, where a small batch has a few hundred."""

from __future__ import annotations

from functools import lru_cache, reduce
from typing import Any


@lru_cache(maxsize=512)
def java_class(jvm: Any, name: str) -> Any:
    """The class `name`, with its package, looked up once; py4j's own error where it is called and isn't there."""
    return reduce(getattr, name.split("."), jvm)


def scala_object(package: Any, name: str) -> Any:
    """Scala's object of this name."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")
