"""Columns that are selected batch after batch: written down once, and handed to the JVM once. PySpark hands them over
anew for each frame, by a call for each column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame


class Projection:
    """Columns of any frame that has what they are made of. To be kept no longer than the columns themselves."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = tuple(columns)
        self._handed_over: Any = None

    def of(self, rows: DataFrame) -> DataFrame:
        """`rows.select` of them."""
        frame: Any = rows
        if self._handed_over is None:
            self._handed_over = frame._jcols(*self.columns)
        return DataFrame(frame._jdf.select(self._handed_over), rows.sparkSession)
