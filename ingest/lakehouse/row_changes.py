"""The row changes that a batch makes in a table."""

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
    """States to write. `states`: with their `ACTION` and the `LOCATION` of the row that each replaces. `actions`:
    those that occur. `files`: names of the files that hold the replaced rows. `rows`: number of states. `parts`: number
    of partitions in which the states are sorted by key, if they are. `row_numbers`: the replaced rows by file, if they
    are few. `by_location`: the key of a replaced row may be null, so that only `LOCATION` tells which it is."""

    states: DataFrame
    actions: frozenset[str]
    files: frozenset[str]
    rows: int
    parts: int | None = None
    row_numbers: Mapping[str, RowNumbers] | None = None
    by_location: bool = False

    @property
    def is_small(self) -> bool:
        """Returns True if the states are few, so that Spark's prepared plans suit them."""
        return self.row_numbers is not None

    @property
    def deleted_rows(self) -> DeletedRows:
        """Returns the rows that the states replace or delete."""
        if self.row_numbers is not None:
            return self.row_numbers
        return self.states.where(F.col(ACTION).isin(UPDATE, DELETE)).select(LOCATION)
