"""Reusable projections. PySpark hands columns to the JVM for each `select`, by one call per column; here it does
once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame


class Projection:
    """Columns to select from any frame that has their inputs. Valid as long as the JVM that it was first used in."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = tuple(columns)
        self._handed_over: Any = None

    def of(self, rows: DataFrame) -> DataFrame:
        """Returns `rows.select(*columns)`."""
        frame: Any = rows
        if self._handed_over is None:
            self._handed_over = frame._jcols(*self.columns)
        return DataFrame(frame._jdf.select(self._handed_over), rows.sparkSession)
