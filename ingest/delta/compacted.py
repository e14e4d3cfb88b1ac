"""Small files of a table written together, for order's sake: it gives way to whoever else writes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from pyspark.sql import DataFrame

from ingest.delta.conflict_retry import CONFLICTS
from ingest.delta.data_file import DataFile
from ingest.delta.delta_table import Table
from ingest.spark.background import defer

Together = Callable[[Sequence[DataFile]], DataFrame]
"""How the rows of some files are laid out."""


def compact(table: Table, files: Sequence[DataFile], together: Together) -> bool:
    """`files`, be they any. Whether there were any."""
    with suppress(*CONFLICTS):
        if files:
            table.rewrite(files, together(files))
    return bool(files)


class BackgroundCompaction:
    """Those of a table in which no batch changes what is there: where such work is put off they are written beside the
    next batches."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._begun = False

    def compact(self, files: Sequence[DataFile], together: Together) -> bool:
        """`files`, be they any, where none are in hand. Whether there were any."""
        if self._begun or not files:
            return False
        with suppress(*CONFLICTS):
            writing = self._table.write_rewrite(files, together(files))
            self._begun = True
            defer(writing, partial(self._exchange, files))
        return True

    def _exchange(self, files: Sequence[DataFile], written: Callable[[], list[Any]]) -> None:
        self._begun = False
        with suppress(*CONFLICTS):
            # Where somebody else has written these files, nobody asks how writing them here has ended.
            self._table.commit_rewrite(files, written)
