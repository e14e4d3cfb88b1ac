"""Files of few rows: each is written by the task that computes its rows.

Delta's own way there, and Spark's, plans a query to write what another query gives, tells of it to who watches queries,
and copies a thousand settings to each task: for few rows that is nearly all of the time.
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


def written(transaction: Any, rows: DataFrame) -> list[Any] | None:
    """Delta's actions of new files of a transaction's table with these rows, which have its columns and may say what
    changed; of each file its statistics, as the table wants them. None where the table asks for more than that, or
    where tasks run outside of the driver's JVM."""
    spark = rows.sparkSession
    if not reaches_tasks(spark.sparkContext):
        return None
    actions = _classes(spark).written(transaction, rows._jdf)
    # To iterate over it would end, in py4j, in an exception, which PySpark looks at longer than the writing took.
    return None if actions is None else [actions.get(number) for number in range(actions.size())]


@cache
def _classes(spark: SparkSession) -> Any:
    """Looked up once per session."""
    prepared.classes(spark)
    jvm: Any = spark._jvm
    source = Path(__file__).with_name("FewRows.java").read_text(encoding="utf-8")
    define(jvm, source, f"{_PACKAGE}.DelayedCommitProtocol", _CLASSES)
    return java_class(jvm, f"{_PACKAGE}.FewRows")
