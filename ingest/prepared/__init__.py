"""Queries over few rows that come again with every batch: planned once, and asked of other rows each time.

Where rows are few most of a query's time is its plan: columns become expressions, functions are resolved, the plan is
optimised, its code is generated. Next time it is the same plan, of other rows. So it is made over slots, and a task
fills them with the rows at hand. It runs in one task: nothing in it may be sent from task to task.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ingest.cut import cut, kept
from ingest.java_classes import java_class
from ingest.java_source import define, reaches_tasks

_CLASSES = ("PreparedPart", "PreparedParts", "PreparedSlot", "PreparedCopies", "PreparedNeeds", "Prepared")
_AT_HAND = 1024
"""Plans that are kept, each a third of a megabyte: all that the batches of a hundred tables ask."""

Query = Callable[..., DataFrame]


def asked(query: Query, by: tuple[Hashable, ...], *rows: DataFrame, once: bool = False, few: bool = True) -> DataFrame:
    """`query(*by, *rows)`, in one task. Of `by` and of the columns of `rows`, and of nothing else, may depend what the
    query is. `once`: the answer is computed once, as that of `cut`. `few`: so are the rows; of many it is planned anew,
    for several tasks.

    The query's joins have the hint `shuffle_hash`, and what joins rows that both sides have is brought together
    (`coalesce(1)`): one that Spark would share out is planned anew each time."""
    spark = rows[0].sparkSession
    plan = None
    # Executors beside this JVM don't know the class.
    if few and reaches_tasks(spark.sparkContext):
        given = java_class(spark._jvm, "java.util.ArrayList")()
        for frame in rows:
            given.add(frame._jdf)
        plan = _plan(spark, query, by, _prepared(spark).columns(given))
    if plan is None or not plan.repeats:
        answer = query(*by, *rows)
        return cut(answer) if once else answer
    return plan.answer(given, once)


class _Plan:
    """Of one query of rows with these columns."""

    def __init__(self, spark: SparkSession, query: Query, by: tuple[Hashable, ...], columns: Any) -> None:
        self._spark = spark
        self._prepared = _prepared(spark)
        self._slots = self._prepared.slots(spark._jsparkSession, columns)
        self._planned = query(*by, *(DataFrame(slot, spark) for slot in self._slots))
        self.repeats = bool(self._prepared.repeats(self._planned._jdf.queryExecution().executedPlan()))

    def answer(self, given: Any, once: bool) -> DataFrame:
        answer = DataFrame(self._prepared.answer(self._planned._jdf, self._slots, given, once), self._spark)
        # Spark forgets the metrics of a plan that nobody holds, and then complains of every task that tells them.
        return kept(answer, self) if once else answer


@lru_cache(maxsize=_AT_HAND)
def _plan(spark: SparkSession, query: Query, by: tuple[Hashable, ...], columns: Any) -> _Plan:
    """Kept. Two threads may make one each: either is as good."""
    return _Plan(spark, query, by, columns)


@cache
def _prepared(spark: SparkSession) -> Any:
    """The class, looked up once per session."""
    jvm: Any = spark._jvm
    source = Path(__file__).with_name("Prepared.java").read_text(encoding="utf-8")
    define(jvm, source, "org.apache.spark.rdd.RDD", _CLASSES)
    return java_class(jvm, "org.apache.spark.rdd.Prepared")
