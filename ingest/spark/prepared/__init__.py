"""Queries over few rows that come again with every batch: planned once, and asked of other rows each time.

Where rows are few most of a query's time is its plan: columns become expressions, functions are resolved, the plan is
optimised, its code is generated. Next time it is the same plan, of other rows. So it is made over slots, and a task
fills them, in a copy that no other task has, with the rows at hand; or it is made over files, and asked of other ones.
It runs in one task: nothing in it may be sent from task to task.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.jvm.classes import java_class
from ingest.jvm.library import tasks_have_library
from ingest.spark.checkpoints import add_to_scope, checkpoint

_AT_HAND = 1024
"""Plans over slots that are kept, each a third of a megabyte: all that the batches of a hundred tables ask, though no
two of them have the same columns."""
_SCANS_AT_HAND = 512
"""Plans over files: a table that is small has three."""

Query = Callable[..., DataFrame]


def asked(query: Query, by: tuple[Hashable, ...], *rows: DataFrame, once: bool = False, few: bool = True) -> DataFrame:
    """`query(*by, *rows)`, in one task. Of `by` and of the columns of `rows`, and of nothing else, may depend what the
    query is. `once`: the answer is computed once, as that of `cut`. `few`: so are the rows; of many it is planned anew,
    for several tasks.

    The query's joins have the hint `shuffle_hash`, and what joins rows that both sides have is brought together
    (`coalesce(1)`): one that Spark would share out is planned anew each time."""
    given = _listed(rows)
    plan = _planned(query, by, rows, given) if few else None
    if plan is None:
        answer = query(*by, *rows)
        return checkpoint(answer) if once else answer
    return plan.answer(given, once)


def told(query: Query, by: tuple[Hashable, ...], *rows: DataFrame, few: bool = True) -> list[dict[str, Any]]:
    """The rows that `asked` would give, of which there are few, by their columns: what is null is left out, what is
    binary is in base64."""
    given = _listed(rows)
    plan = _planned(_in_json, (query, *by), rows, given) if few else None
    if plan is None:
        return [json.loads(row[0]) for row in _in_json(query, *by, *rows).collect()]
    found: list[dict[str, Any]] = json.loads(plan.told(given))
    return found


@dataclass(frozen=True)
class Files:
    """Files of a table, alike where the plans of their rows are. `like`: what beside the files these depend on, as the
    JVM compares it. `index`: a `FileIndex` of Spark's; `rows`: a frame of it."""

    spark: SparkSession
    like: Any
    index: Any = field(compare=False)
    rows: Callable[[], DataFrame] = field(compare=False)


def scanned(query: Query, by: tuple[Hashable, ...], files: Files) -> DataFrame:
    """`query(*by, rows)` of the rows of `files`, each asked for itself, in one task. It is planned once for what is
    alike."""
    plan = _scan(query, by, files) if tasks_have_library(files.spark.sparkContext) else None
    if plan is None or not plan.repeats:
        return query(*by, files.rows()).coalesce(1)
    return plan.answer(files)


def _in_json(query: Query, *of: Any) -> DataFrame:
    return query(*of).select(F.to_json(F.struct("*")))


def _listed(rows: Sequence[DataFrame]) -> Any:
    """As the JVM has them."""
    listed = java_class(rows[0].sparkSession._jvm, "java.util.ArrayList")()
    for frame in rows:
        listed.add(frame._jdf)
    return listed


def _planned(query: Query, by: tuple[Hashable, ...], rows: Sequence[DataFrame], given: Any) -> _Plan | None:
    """The plan of `query` for rows with the columns of `given`; None where none can be asked again."""
    spark = rows[0].sparkSession
    if not tasks_have_library(spark.sparkContext):
        return None
    plan = _plan(spark, query, by, _java(spark).columns(given))
    return plan if plan.repeats else None


class _Plan:
    """Of one query of rows with these columns."""

    def __init__(self, spark: SparkSession, query: Query, by: tuple[Hashable, ...], columns: Any) -> None:
        self._spark = spark
        self._classes = _java(spark)
        slots = self._classes.slots(spark._jsparkSession, columns)
        self._planned = query(*by, *(DataFrame(slots.get(number), spark) for number in range(slots.size())))
        self._plan = self._classes.plan(self._planned._jdf, slots)

    @property
    def repeats(self) -> bool:
        """Whether it may be asked again."""
        return self._plan is not None

    def answer(self, given: Any, once: bool) -> DataFrame:
        answer = DataFrame(self._classes.answer(self._planned._jdf, self._plan, given, once), self._spark)
        # Tasks find a plan as long as somebody holds it.
        return add_to_scope(answer, self) if once else answer

    def told(self, given: Any) -> str:
        """Of a query in JSON."""
        return str(self._classes.told(self._plan, given))


@lru_cache(maxsize=_AT_HAND)
def _plan(spark: SparkSession, query: Query, by: tuple[Hashable, ...], columns: Any) -> _Plan:
    """Kept. Two threads may make one each: either is as good."""
    return _Plan(spark, query, by, columns)


class _Scan:
    """Of one query of the rows of files."""

    def __init__(self, query: Query, by: tuple[Hashable, ...], files: Files) -> None:
        self._spark = files.spark
        self._planned = query(*by, files.rows())
        self._plan = _java(self._spark).scan(self._planned._jdf)

    @property
    def repeats(self) -> bool:
        """Whether it may be asked of other files."""
        return self._plan is not None

    def answer(self, files: Files) -> DataFrame:
        answer = DataFrame(_java(self._spark).scanned(self._planned._jdf, self._plan, files.index), self._spark)
        vars(answer)["computed_from"] = self  # Tasks find a plan as long as somebody holds it.
        return answer


@lru_cache(maxsize=_SCANS_AT_HAND)
def _scan(query: Query, by: tuple[Hashable, ...], files: Files) -> _Scan:
    """Kept, as `_plan` keeps them."""
    return _Scan(query, by, files)


def _java(spark: SparkSession) -> Any:
    return java_class(spark._jvm, "ingest.prepared.PreparedQuery")
