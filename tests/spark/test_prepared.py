"""A prepared query gives the right rows for any later input."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.jvm.classes import java_class
from ingest.spark.checkpoints import checkpoint_scope
from ingest.spark.prepared import Query, collect_prepared, run_prepared

pytestmark = pytest.mark.spark
_ROWS: tuple[list[tuple[int, str | None]], ...] = (
    [(1, "a"), (2, "b"), (2, "c")],
    [(3, "d")],
    [],
    [(1, "e"), (1, "a"), (4, None)],
)


def _frame(spark: SparkSession, rows: Iterable[tuple[int, str | None]], parts: int = 1) -> DataFrame:
    listed = list(rows)
    frame = (
        spark.createDataFrame(listed, "id int, name string")
        if listed
        else spark.sql("SELECT 1 AS id, 'a' AS name WHERE false")
    )
    return frame.repartition(parts).select(F.col("id").cast("int"), F.col("name").cast("string"))


def _found(answer: DataFrame) -> list[tuple[object, ...]]:
    return sorted(map(tuple, answer.collect()), key=repr)


def _names(least: int, rows: DataFrame) -> DataFrame:
    return rows.where(F.col("id") >= least).groupBy("id").agg(F.array_sort(F.collect_list("name")).alias("names"))


def _joined(rows: DataFrame, others: DataFrame) -> DataFrame:
    there = others.select("id", F.upper("name").alias("other")).hint("shuffle_hash")
    return rows.join(there, "id").coalesce(1).groupBy("id", "other").count()


def _shuffled(rows: DataFrame, others: DataFrame) -> DataFrame:
    return rows.join(F.broadcast(others.select("id")), "id", "left_semi").repartition(2, "id").distinct()


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("once", [True, False])
def test_reused_plan_reads_the_given_rows(spark: SparkSession, parts: int, once: bool) -> None:
    with checkpoint_scope():
        answers = [run_prepared(_names, (2,), _frame(spark, rows, parts), once=once) for rows in _ROWS]
        # Collect after all queries were prepared: inputs of one must not reach another.
        for answer, rows in zip(answers, _ROWS, strict=True):
            assert _found(answer) == _found(_names(2, _frame(spark, rows)))


@pytest.mark.parametrize("query", [_joined, pytest.param(_shuffled, marks=pytest.mark.long)])
def test_reused_plan_of_any_query_reads_the_given_rows(spark: SparkSession, query: Query) -> None:
    for rows in _ROWS:
        for others in _ROWS:
            given = (_frame(spark, rows, 2), _frame(spark, others, 2))
            assert _found(run_prepared(query, (), *given)) == _found(query(*given))


def test_result_can_be_queried_again(spark: SparkSession) -> None:
    for rows in _ROWS:
        frame = _frame(spark, rows)
        first = run_prepared(_names, (1,), frame, once=True)
        again = run_prepared(_named, (), run_prepared(_named, (), first))
        assert _found(again) == _found(_named(_named(_names(1, frame))))


@pytest.mark.parametrize("few", [True, False])
def test_collected_values_are_json(spark: SparkSession, few: bool) -> None:
    for rows in _ROWS:
        given = [row | {"blob": base64.b64encode(b"\0\1").decode()} for row in map(_as_json, rows)]
        assert collect_prepared(_with_blob, (), _frame(spark, rows), is_small=few) == given


def _as_json(row: tuple[int, str | None]) -> dict[str, Any]:
    return {name: value for name, value in zip(("id", "name"), row, strict=True) if value is not None}


def _with_blob(rows: DataFrame) -> DataFrame:
    return rows.withColumn("blob", F.unhex(F.lit("0001")))


def _named(rows: DataFrame) -> DataFrame:
    return rows.withColumn("id", F.col("id") + 1)


def test_plan_is_made_once(spark: SparkSession) -> None:
    planned = []

    def counted(rows: DataFrame) -> DataFrame:
        planned.append(rows)
        return rows.where(F.col("id") > 1)

    for rows in _ROWS[:2]:
        run_prepared(counted, (), _frame(spark, rows)).collect()
    assert len(planned) == 1


def test_other_columns_are_planned_anew(spark: SparkSession) -> None:
    for rows in _ROWS[:2]:
        frame = _frame(spark, rows)
        turned = frame.select("name", "id", F.lit(5).alias("more"))
        for given in (frame, turned, frame):
            assert _found(run_prepared(_names, (0,), given)) == _found(_names(0, given))


def test_checkpointed_result_is_computed_once(spark: SparkSession) -> None:
    with checkpoint_scope():
        answer = run_prepared(_with_random, (), _frame(spark, _ROWS[0]), once=True)
        assert _found(answer) == _found(answer)
    always = run_prepared(_with_random, (), _frame(spark, _ROWS[0]))
    assert _found(always) != _found(always)


def _with_random(rows: DataFrame) -> DataFrame:
    return rows.withColumn("drawn", F.expr("reflect('java.util.UUID', 'randomUUID')"))


def test_concurrent_queries(spark: SparkSession) -> None:
    def ask(number: int) -> bool:
        rows = [(number, str(n)) for n in range(number)]
        return _found(run_prepared(_names, (0,), _frame(spark, rows))) == _found(_names(0, _frame(spark, rows)))

    with ThreadPoolExecutor(4) as several:
        assert all(several.map(ask, range(1, 20)))


def test_copy_belongs_to_one_task_until_returned(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    copies = java_class(jvm, "ingest.prepared.Copies")(java_class(jvm, "java.util.ArrayList")())
    one, other = copies.take(), copies.take()
    one.add("written on")
    assert list(other) == []
    copies.giveBack(one)
    assert [list(copies.take()), list(copies.take())] == [["written on"], []]
