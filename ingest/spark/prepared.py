"""Queries over few rows that every batch repeats: planned once, then run over other rows.

Of a query over few rows most of the time is planning: expressions are made, resolved, optimised and compiled. A plan is
therefore made over slots, and each task fills the slots of a copy of its own with the rows at hand; or it is made over
files, and run over others. It runs in one task, so it may not contain a shuffle.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.jvm.library import tasks_have_library
from ingest.jvm.prepared_plans import JavaFrames, RowPlan, ScanPlan
from ingest.spark.checkpoints import add_to_scope, checkpoint

_AT_HAND = 1024
"""Number of plans over slots that are kept, a third of a megabyte each: enough for the batches of a hundred tables of
which no two have the same columns."""
_SCANS_AT_HAND = 512
"""Number of plans over files that are kept: a small table has three."""

Query = Callable[..., DataFrame]


def run_prepared(
    query: Query, by: tuple[Hashable, ...], *rows: DataFrame, once: bool = False, is_small: bool = True
) -> DataFrame:
    """Returns `query(*by, *rows)`, computed in one task. The query may depend on `by` and the columns of `rows` only.
    `once`: the result is checkpointed. `is_small`: the rows are few; for many it is planned anew, for several tasks.

    Joins in the query need the hint `shuffle_hash`, and inputs in one partition (`coalesce(1)`): a query with a shuffle
    or a broadcast is planned anew each time."""
    given = JavaFrames(rows)
    plan = _planned(query, by, given) if is_small else None
    if plan is None:
        answer = query(*by, *rows)
        return checkpoint(answer) if once else answer
    answer = plan.answer(given, once)
    # Local tasks find a plan as long as the driver references it.
    return add_to_scope(answer, plan) if once else answer


def collect_prepared(
    query: Query, by: tuple[Hashable, ...], *rows: DataFrame, is_small: bool = True
) -> list[dict[str, Any]]:
    """Returns the few rows of `run_prepared` as dictionaries in JSON's types: without nulls, and bytes in base64."""
    given = JavaFrames(rows)
    plan = _planned(_in_json, (query, *by), given) if is_small else None
    if plan is None:
        return [json.loads(row[0]) for row in _in_json(query, *by, *rows).collect()]
    found: list[dict[str, Any]] = json.loads(plan.to_json(given))
    return found


@dataclass(frozen=True)
class Files:
    """Files of a table. Equal if the plans over their rows are. `like`: what the plan depends on besides the files, a
    Java object with `equals`. `index`: Spark's `FileIndex` of them. `rows`: makes a frame of them."""

    spark: SparkSession
    like: Any
    index: Any = field(compare=False)
    rows: Callable[[], DataFrame] = field(compare=False)


def scanned(query: Query, by: tuple[Hashable, ...], files: Files) -> DataFrame:
    """Returns `query(*by, rows)` for the rows of `files`, computed in one task. The query handles each row by itself.
    It is planned once for equal `files`."""
    plan = _scan(query, by, files) if tasks_have_library(files.spark.sparkContext) else None
    if plan is None or not plan.repeats:
        return query(*by, files.rows()).coalesce(1)
    answer = plan.answer(files.index)
    vars(answer)["computed_from"] = plan  # Local tasks find a plan as long as the driver references it.
    return answer


def _in_json(query: Query, *of: Any) -> DataFrame:
    return query(*of).select(F.to_json(F.struct("*")))


def _planned(query: Query, by: tuple[Hashable, ...], given: JavaFrames) -> RowPlan | None:
    """Returns the plan of `query` for rows with the columns of `given`; None if it can't be run again."""
    if not tasks_have_library(given.spark.sparkContext):
        return None
    plan = _plan(given.spark, query, by, given.columns())
    return plan if plan.repeats else None


@lru_cache(maxsize=_AT_HAND)
def _plan(spark: SparkSession, query: Query, by: tuple[Hashable, ...], columns: Hashable) -> RowPlan:
    # Two threads may make one each.
    return RowPlan(spark, query, by, columns)


@lru_cache(maxsize=_SCANS_AT_HAND)
def _scan(query: Query, by: tuple[Hashable, ...], files: Files) -> ScanPlan:
    return ScanPlan(query, by, files.rows())
