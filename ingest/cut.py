"""A long plan cut in two: what it comes to so far is kept as rows, and what follows plans over plain rows."""

from __future__ import annotations

from pyspark.sql import DataFrame


def cut(frame: DataFrame) -> DataFrame:
    """The rows of `frame`, computed once, where they are first asked for. Gone with the process."""
    rows = frame.localCheckpoint(eager=False)
    # Spark forgets the metrics of a plan that nobody holds, and then complains of every task that reports to them.
    vars(rows)["computed_from"] = frame
    return rows
