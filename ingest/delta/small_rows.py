"""Small writes: each file is written by the task that computes its rows.

Delta's own write plans a second query, reports it to the listeners, and copies a thousand settings to each task: for
few rows that is nearly all of the time.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from ingest.jvm.classes import static_method
from ingest.jvm.library import tasks_have_library


def write_small_rows(transaction: Any, rows: DataFrame) -> list[Any] | None:
    """Writes rows to new files of a transaction's table. Returns Delta's actions for them, with the statistics that the
    table collects; None if the table has features that this does not support, or tasks lack the class that writes.
    `rows`: with the table's columns and, optionally, `CHANGE_TYPE`."""
    spark = rows.sparkSession
    if not tasks_have_library(spark.sparkContext):
        return None
    actions = static_method(spark._jvm, "ingest.delta.SmallWrite", "written")(transaction, rows._jdf)
    # Iterating in py4j ends with an exception, which PySpark inspects for longer than the write took.
    return None if actions is None else [actions.get(number) for number in range(actions.size())]
