"""What is to be written to a table, as a verdict says it."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Writes:
    """States that take effect, with their `_action` and the `LOCATION` of the row that each replaces; the actions that
    are among them, the names of the files that hold those rows, and how many states there are. `parts`: the
    states lie sorted by key in so many parts, if they do."""

    states: DataFrame
    actions: frozenset[str]
    files: frozenset[str]
    rows: int
    parts: int | None = None
