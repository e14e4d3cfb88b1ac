"""Delta table features that columns need, as table properties. Each feature excludes some readers, so a table has it
only if a column needs it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyspark.sql import types as T

MAPPING = "delta.columnMapping.mode"
_NEEDS_MAPPING = re.compile(r"[ ,;{}()\n\t=]")


def features(columns: Mapping[str, T.DataType]) -> dict[str, str]:
    """Returns the properties of a table with these columns."""
    found = {}
    if any(_needs_mapping(name, kind) for name, kind in columns.items()):
        found[MAPPING] = "name"
    # Delta enables this feature by itself only when it creates the table.
    if any(_contains(kind, T.TimestampNTZType) for kind in columns.values()):
        found["delta.feature.timestampNtz"] = "supported"
    return found


def _needs_mapping(name: str, kind: T.DataType) -> bool:
    """Returns True if Parquet can't hold the name of the column or of a field in its type."""
    return bool(_NEEDS_MAPPING.search(name)) or any(_needs_mapping(n, k) for n, k in _parts(kind))


def _contains(kind: T.DataType, sought: type[T.DataType]) -> bool:
    return isinstance(kind, sought) or any(_contains(part, sought) for _, part in _parts(kind))


def _parts(kind: T.DataType) -> list[tuple[str, T.DataType]]:
    """Returns the names and types of the fields or elements of a type."""
    match kind:
        case T.StructType():
            return [(f.name, f.dataType) for f in kind.fields]
        case T.ArrayType():
            return [("", kind.elementType)]
        case T.MapType():
            return [("", kind.keyType), ("", kind.valueType)]
    return []
