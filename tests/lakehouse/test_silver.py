"""Silver on disk: deletion vectors mark removed rows, small files are compacted, keys are found by page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.changelog.change import COLUMN_POSITIONS, COLUMN_POSITIONS_TYPE, SOURCE_TS, quoted
from ingest.changelog.position import POSITION
from ingest.delta import compaction, delta_table
from ingest.delta.classes import as_list
from ingest.errors import Contended
from ingest.evolution.policies import TableColumn
from ingest.internal_columns import LOCATION, LOCATION_TYPE
from ingest.lakehouse import page_index
from ingest.lakehouse.row_changes import RowChanges
from ingest.lakehouse.silver import Silver
from ingest.merge.actions import ACTION, DELETE, INSERT, UPDATE
from ingest.merge.table_schema import TableSchema
from ingest.tuning import Tuning
from ingest.values.types import parse
from tests.tunings import LARGE_TABLES

pytestmark = pytest.mark.spark
KEYS = {
    "int64": "id",
    "string": "concat('key ', id)",
    "date": "date_add(date'1969-11-20', cast(id as int))",
    "timestamp": "cast(timestamp_micros(id * 7777777 - 3) as timestamp_ntz)",
    "decimal(20,3)": "cast(id - 400.125 as decimal(20,3))",
    "bytes": "unhex(sha2(cast(id as string), 256))",
}


def table_schema(kind: str = "int64", name: str = "id") -> TableSchema:
    return TableSchema("s.t", (name,), (TableColumn(name, parse(kind)), TableColumn("said", parse("string"))))


def states(rows: DataFrame, action: str) -> DataFrame:
    """Returns states. `rows`: the table's columns, and optionally `LOCATION`."""
    fixed = {f.name: F.lit(1).cast(f.dataType) for f in POSITION.fields}
    added = {
        "_position": F.struct(*(value.alias(name) for name, value in fixed.items())),
        SOURCE_TS: F.lit(None).cast("timestamp"),
        COLUMN_POSITIONS: F.lit(None).cast(COLUMN_POSITIONS_TYPE),
        ACTION: F.lit(action),
    }
    if LOCATION not in rows.columns:
        added[LOCATION] = F.lit(None).cast(LOCATION_TYPE)
    return rows.withColumns(added)


def written(rows: DataFrame, action: str) -> RowChanges:
    made = states(rows, action).localCheckpoint()
    files = {r.file for r in made.select(F.col(LOCATION)["file"].alias("file")).distinct().collect()} - {None}
    return RowChanges(made, frozenset({action}), frozenset(files), made.count())


def opened(spark: SparkSession, folder: Path, tuning: Tuning = LARGE_TABLES) -> Silver:
    return Silver(spark, str(folder), tuning=tuning)


def rows(table: Silver) -> list[Any]:
    return sorted(tuple(r) for r in table.rows().select("id", "said").collect())


def feed(spark: SparkSession, table: Silver, since: int) -> Iterator[tuple[Any, ...]]:
    changes = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", since)
    for row in changes.load(table.path).select("id", "said", "_change_type").collect():
        yield tuple(row)


def test_removed_rows_are_marked_and_in_the_feed(spark: SparkSession, tmp_path: Path) -> None:
    table = opened(spark, tmp_path / "t")
    table.apply(written(spark.range(10).withColumn("said", F.lit("first")), INSERT), table_schema(), {})
    (file,) = table._table.files()
    some = table.located().where("id in (3, 4)").select("id", LOCATION)
    table.apply(written(some.withColumn("said", F.lit("second")), UPDATE), table_schema(), {"upto": 2})
    assert file in table._table.files()
    more = table.located().where("id in (4, 5)").select("id", LOCATION)
    table.apply(written(more.withColumn("said", F.lit(None).cast("string")), DELETE), table_schema(), {"upto": 3})
    assert rows(table) == [*((n, "first") for n in range(3)), (3, "second"), *((n, "first") for n in range(6, 10))]
    commit_info = next(table.commits())
    assert commit_info is not None
    assert commit_info.user_metadata == {"upto": 3}
    assert sorted(feed(spark, table, 1)) == [
        (3, "first", "delete"),
        (3, "second", "insert"),
        (4, "first", "delete"),
        (4, "second", "delete"),
        (4, "second", "insert"),
        (5, "first", "delete"),
    ]


def test_file_without_live_rows_is_removed(spark: SparkSession, tmp_path: Path) -> None:
    table = opened(spark, tmp_path / "t")
    table.apply(written(spark.range(4).withColumn("said", F.lit("x")), INSERT), table_schema(), {})
    table.apply(written(spark.range(4, 6).withColumn("said", F.lit("x")), INSERT), table_schema(), {})
    first = table.located().where("id < 4").select("id", "said", LOCATION)
    table.apply(written(first, DELETE), table_schema(), {})
    assert len(table._table.files()) == 1
    assert rows(table) == [(4, "x"), (5, "x")]


def test_compaction_changes_no_row(spark: SparkSession, tmp_path: Path) -> None:
    table = opened(spark, tmp_path / "t")
    for n in range(compaction.FILES_PER_SIZE):
        table.compact(table_schema())
        assert len(table._table.files()) == n if n else True
        batch = spark.range(n, 100 * compaction.FILES_PER_SIZE, compaction.FILES_PER_SIZE).withColumn(
            "said", F.lit(f"batch {n}")
        )
        table.apply(written(batch, INSERT), table_schema(), {"upto": n})
    gone = table.located().where("id = 3").select("id", "said", LOCATION)
    table.apply(written(gone, DELETE), table_schema(), {"upto": 8})
    before, version = rows(table), DeltaTable.forPath(spark, table.path).history(1).first()
    assert version is not None
    table.compact(table_schema())
    (file,) = table._table.files().values()
    assert (file.rows, file.deleted_rows) == (len(before), 0)
    assert rows(table) == before
    ids = [r.id for r in table._table.rows_in([file]).select("id").collect()]
    assert ids == sorted(ids)
    commit_info = next(table.commits())
    assert commit_info is not None
    assert commit_info.user_metadata == {"upto": 8}
    assert list(feed(spark, table, version.version + 1)) == []


def test_compacted_files_are_not_due_again(spark: SparkSession, tmp_path: Path) -> None:
    """Rows so narrow that the files of a first load are small: such a table was once rewritten at every batch."""
    small_files = replace(LARGE_TABLES, rows_per_writing_task=10, rows_per_written_file=50)
    table = opened(spark, tmp_path / "t", small_files)
    loaded = spark.range(50 * compaction.FILES_PER_SIZE).withColumn("said", F.lit("x"))
    table.apply(written(loaded, INSERT), table_schema(), {})
    assert len(table._table.files()) == compaction.FILES_PER_SIZE
    table.compact(table_schema())
    (file,) = table._table.files()
    table.compact(table_schema())
    assert list(table._table.files()) == [file]


@pytest.mark.parametrize("kind", KEYS)
def test_keys_are_found_by_the_page_index(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    name = "a `strange` key.name"
    table = opened(spark, tmp_path / "t")
    all_rows = spark.range(1000).select(F.expr(KEYS[kind]).alias(name), F.lit("x").alias("said"))
    named = table_schema(kind, name.replace(" ", "_"))
    all_rows = all_rows.withColumnRenamed(name, named.key[0])
    table.apply(written(all_rows, INSERT), named, {})
    wanted = all_rows.sample(0.1, seed=1).unionByName(all_rows.limit(1)).distinct().localCheckpoint()
    found = table.matching(wanted, named.key)
    assert found.count() == wanted.count()
    assert found.select(quoted(named.key[0])).exceptAll(wanted.select(quoted(named.key[0]))).isEmpty()
    scan, few = page_index._scan(table._table, named.key[0], wanted, [*table._table.files().values()])
    assert few
    scan_options = scan._jdf.queryExecution().analyzed().relation().options().mkString()
    # Spark pushes no filters on these times to Parquet, so all rows are read.
    assert ("parquet.private.read.filter.predicate" in scan_options) == (kind != "timestamp")


def test_pages_without_a_key_are_not_read(spark: SparkSession, tmp_path: Path) -> None:
    table = opened(spark, tmp_path / "t")
    table.apply(written(spark.range(50_000).withColumn("said", F.lit("x")), INSERT), table_schema(), {})
    wanted = spark.createDataFrame([(7,), (40_000,)], "id bigint")
    found = table.matching(wanted, ["id"])
    assert {r.id for r in found.collect()} == {7, 40_000}
    leaves = as_list(found._jdf.queryExecution().executedPlan().collectLeaves())
    (scan,) = (leaf for leaf in leaves if leaf.nodeName().startswith("Scan parquet"))
    assert 0 < scan.metrics().apply("numOutputRows").value() <= 4000


def test_table_created_by_another_writer_is_read_again(spark: SparkSession, tmp_path: Path) -> None:
    one, other = (delta_table.Table(spark, str(tmp_path / "t")) for _ in range(2))
    for name, table in (("one", one), ("other", other)):
        table.pin_snapshot(name)
    one.commit(spark.range(1))
    assert other.version() == 0
    with pytest.raises(Contended):
        other.commit(spark.range(1, 2))
    other.pin_snapshot("other")
    other.commit(spark.range(1, 2))
    assert one.rows().count() == 2
