"""Classes of the JVM by name, looked up once. Py4j searches all jars for each part of a name at each use: a
millisecond, and a small batch uses a few hundred."""

from __future__ import annotations

from functools import lru_cache, reduce
from typing import Any


@lru_cache(maxsize=512)
def java_class(jvm: Any, name: str) -> Any:
    """Returns the class of this full name, looked up once. For a missing class py4j raises at its first use."""
    return reduce(getattr, name.split("."), jvm)


@lru_cache(maxsize=512)
def static_method(jvm: Any, class_name: str, method: str) -> Any:
    """Returns a static method, looked up once: of a class, py4j looks it up at each call."""
    return getattr(java_class(jvm, class_name), method)


def scala_object(package: Any, name: str) -> Any:
    """Returns the Scala object `name` of a package."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")
