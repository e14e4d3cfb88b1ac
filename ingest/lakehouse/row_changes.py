"""What is to be written to a table, as a verdict says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.delta.deletion_vectors import DeletedRows
from ingest.delta.vector_store import RowNumbers
from ingest.internal_columns import LOCATION
from ingest.merge.actions import ACTION, DELETE, UPDATE


@dataclass(frozen=True)
class RowChanges:
    """States that take effect, with their `_action` and the `LOCATION` of the row that each replaces; the actions that
    are among them, the names of the files that hold those rows, and how many states there are. `parts`: the
    states lie sorted by key in so many parts, if they do. `few`: those rows by their files, where they are few."""

    states: DataFrame
    actions: frozenset[str]
    files: frozenset[str]
    rows: int
    parts: int | None = None
    few: Mapping[str, RowNumbers] | None = None

    @property
    def gone(self) -> DeletedRows:
        """The rows that they replace or take away."""
        if self.few is not None:
            return self.few
        return self.states.where(F.col(ACTION).isin(UPDATE, DELETE)).select(LOCATION)
