"""Refuses tables whose columns exceed a limit, of the pipeline's file or of Delta."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ingest.errors import TableUnusable
from ingest.evolution.policies import ColumnConflict, EqualNames, Exceeded, nesting_depth
from ingest.values.columns import Column

LIMIT = "limit-exceeded"
"""The code of a table that is set aside because of a limit."""


def require_within(exceeded: Exceeded | None) -> None:
    """Raises TableUnusable if a limit is exceeded."""
    if exceeded is not None:
        raise TableUnusable(
            LIMIT,
            f"its columns exceed a limit: {exceeded.problem}",
            f"if the source is right, raise limits: {{{exceeded.setting}: …}}; else correct what it writes, or leave "
            "the table out (exclude_tables)",
        )


def require_flat(columns: Iterable[Column], most: int) -> None:
    """Raises TableUnusable if a column of a schema has more than `most` levels of arrays and structs."""
    deep = next((column.name for column in columns if nesting_depth(column.type) > most), None)
    if deep is not None:
        require_within(too_deep(f"column {deep!r} has", most))


def too_deep(what: str, most: int) -> Exceeded:
    """Returns the exceeded limit of levels. `what`: has them."""
    return Exceeded("nesting_depth", f"{what} more than {most:,} levels of arrays and structs")


def require_distinct_columns(conflicts: Sequence[ColumnConflict]) -> None:
    """Raises TableUnusable where a table would need two columns that Delta doesn't tell apart. The whole table is
    refused, because without one of them every row would be wrong."""
    conflict = next((one for one in conflicts if isinstance(one, EqualNames)), None)
    if conflict is not None:
        raise TableUnusable(
            conflict.code,
            str(conflict),
            "give one of them another name: tables: {…: {rename: {column: name}}}",
        )
