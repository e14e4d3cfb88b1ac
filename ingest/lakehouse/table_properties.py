"""The table properties of silver tables: statistics, and the Delta features that columns need. Each feature excludes
some readers, so a table has it only if a column needs it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyspark.sql import types as T

from ingest.changelog.change import POSITION_COLUMN
from ingest.delta.read_table import MAPPING
from ingest.merge.table_schema import TableSchema
from ingest.names import caseless, identifier
from ingest.values.types import spark_type

STATISTICS = "delta.dataSkippingStatsColumns"
_OF_EVERY_TABLE = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"}
_UNSORTED = (T.BooleanType, T.BinaryType, T.ArrayType, T.MapType, T.StructType)
"""Types for which Delta collects no statistics, and refuses to be configured to."""
_NEEDS_MAPPING = re.compile(r"[ ,;{}()\n\t=]")


def silver_properties(table_schema: TableSchema, personal: frozenset[str]) -> dict[str, str]:
    """Returns the properties of a silver table. The log has statistics of the key and of nothing else in a row.
    `personal`: caseless names of columns without statistics: readers then open every file, and skip its pages by
    Parquet's statistics, which are deleted with the file."""
    types = {c.name: spark_type(c.type) for c in table_schema.columns}
    public = (k for k in table_schema.key if caseless(k) not in personal)
    keys = [identifier(k) for k in public if not isinstance(types[k], _UNSORTED)]
    statistics = ",".join(keys) or f"{POSITION_COLUMN}.major"
    return {**_OF_EVERY_TABLE, STATISTICS: statistics, **_features(types)}


def _features(columns: Mapping[str, T.DataType]) -> dict[str, str]:
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
