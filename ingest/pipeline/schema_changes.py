"""The changes of the columns and keys of a pipeline's tables, from the revisions of the catalog."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from ingest.lakehouse.catalog import Revision
from ingest.merge.table_schema import TableSchema


@dataclass(frozen=True)
class SchemaChange:
    """`at`: when the catalog recorded it."""

    table: str
    at: datetime
    change: str


def schema_changes(revisions: Sequence[Revision]) -> list[SchemaChange]:
    """Returns the changes between consecutive revisions of each table, the newest first."""
    found = [
        SchemaChange(newer.entry.table_schema.table, newer.at, change)
        for older, newer in pairwise(revisions)
        if older.entry.table_schema.table == newer.entry.table_schema.table
        for change in _changes(older.entry.table_schema, newer.entry.table_schema)
    ]
    return sorted(found, key=lambda change: change.at, reverse=True)


def _changes(older: TableSchema, newer: TableSchema) -> Iterator[str]:
    # An int53 is stored as an int64, so readers of the table see no difference between them.
    before, after = (
        {c.name: str(c.type).replace("int53", "int64") for c in table_schema.columns} for table_schema in (older, newer)
    )
    for name, kind in after.items():
        if name not in before:
            yield f"column {name} {kind} added"
        elif before[name] != kind:
            yield f"column {name} was {before[name]}, is {kind}"
    for name in before:
        if name not in after:
            yield f"column {name} dropped"
    if older.key != newer.key:
        yield f"key was ({', '.join(older.key)}), is ({', '.join(newer.key)})"
