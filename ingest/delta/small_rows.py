"""Small writes: each file is written by the task that computes its rows.

Delta's own write plans a second query, reports it to the listeners, and copies a thousand settings to each task: for
few rows that is nearly all of the time.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ingest.jvm.classes import java_class
from ingest.jvm.sources import define, reaches_tasks
from ingest.spark import prepared

_PACKAGE = "org.apache.spark.sql.delta.files"
_CLASSES = ("FewRowsFile", "FewRowsWriting", "FewRowsTask", "FewRows")


def write_small_rows(transaction: Any, rows: DataFrame) -> list[Any] | None:
    """Writes rows to new files of a transaction's table. Returns Delta's actions for them, with the statistics that the
    table collects; None if the table has features that this does not support, or tasks run outside of the driver's JVM.
    `rows`: with the table's columns and, optionally, `CHANGE_TYPE`."""
    spark = rows.sparkSession
    if not reaches_tasks(spark.sparkContext):
        return None
    actions = _classes(spark).written(transaction, rows._jdf)
    # Iterating in py4j ends with an exception, which PySpark inspects for longer than the write took.
    return None if actions is None else [actions.get(number) for number in range(actions.size())]


@cache
def _classes(spark: SparkSession) -> Any:
    prepared.classes(spark)
    jvm: Any = spark._jvm
    source = Path(__file__).with_name("FewRows.java").read_text(encoding="utf-8")
    define(jvm, source, f"{_PACKAGE}.DelayedCommitProtocol", _CLASSES)
    return java_class(jvm, f"{_PACKAGE}.FewRows")
