"""A plan over selected files of a table is reused for other files."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.delta.delta_table import Table
from ingest.delta.file_index import located
from ingest.internal_columns import LOCATION
from ingest.spark import prepared

pytestmark = pytest.mark.spark
_PROPERTIES = {"delta.enableDeletionVectors": "true"}


def _high(least: int, rows: DataFrame) -> DataFrame:
    return located(rows).where(F.col("id") >= least).select(F.upper("name").alias("name"), "id", LOCATION)


def _found(rows: DataFrame) -> list[str]:
    return sorted(map(repr, rows.collect()))


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Table:
    """Returns a table of three files with ten rows each."""
    made = Table(spark, str(tmp_path / "a table"))
    for start in (0, 10, 20):
        rows = spark.range(start, start + 10).select("id", F.concat(F.lit("n"), "id").alias("name")).coalesce(1)
        made.commit(rows, properties=_PROPERTIES)
    return made


def _assert_each_file_is_read(table: Table) -> None:
    files = sorted(table.files().values(), key=lambda f: str(f.bounds("id")))
    for some in (files[:1], files[1:], files, []):
        assert _found(table.run_prepared(some, _high, (5,))) == _found(_high(5, table.rows_in(some)))


def test_reused_plan_reads_the_given_files(table: Table) -> None:
    _assert_each_file_is_read(table)


def test_reused_plan_skips_deleted_rows(table: Table) -> None:
    _assert_each_file_is_read(table)
    table.delete(F.col("id").isin(7, 12, 13, 25))
    assert any(f.deleted_rows for f in table.files().values())
    _assert_each_file_is_read(table)


def test_added_columns_are_read(spark: SparkSession, table: Table) -> None:
    _assert_each_file_is_read(table)
    more = spark.range(30, 31).select("id", F.lit("m").alias("name"), F.lit(1.5).alias("more")).coalesce(1)
    more.write.format("delta").mode("append").option("mergeSchema", "true").save(table.path)
    for query in (_high, _more):
        files = list(table.files().values())
        assert _found(table.run_prepared(files, query, (5,))) == _found(query(5, table.rows_in(files)))


def _more(least: int, rows: DataFrame) -> DataFrame:
    return rows.where(F.col("id") >= least)


def test_plan_is_made_once_per_table(table: Table) -> None:
    planned = prepared._scan.cache_info().misses
    for file in table.files().values():
        assert len(_found(table.run_prepared([file], _high, (0,)))) == 10
    assert prepared._scan.cache_info().misses == planned + 1


def test_aggregations_over_several_files_are_planned_anew(table: Table) -> None:
    files = list(table.files().values())
    assert _found(table.run_prepared(files[:1], _counted)) == ["Row(count=10)"]
    assert _found(table.run_prepared(files, _counted)) == ["Row(count=30)"]


def _counted(rows: DataFrame) -> DataFrame:
    return rows.groupBy().agg(F.count("*").alias("count"))
