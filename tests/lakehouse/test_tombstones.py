"""Tombstones of deleted keys, and of keys whose row moved to another key."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.change import MOVED_TO, NEW_KEY, POSITION_COLUMN
from ingest.changelog.position import POSITION
from ingest.delta.compaction import FILES_PER_SIZE
from ingest.lakehouse.tombstones import MOVED_AT, Tombstones
from ingest.merge.actions import TOMBSTONE_KEY, tombstone_key
from ingest.values.render import LOSSLESS_JSON

pytestmark = pytest.mark.spark
KEY = T.StructType([T.StructField("id", T.LongType())])
BURIED = T.StructType([*KEY.fields, T.StructField(POSITION_COLUMN, POSITION), T.StructField(NEW_KEY, KEY)])


def at(lsn: int) -> tuple[int, ...]:
    return 0, lsn, 0, 0, 1, lsn, 0


def tombstones_of(spark: SparkSession, *tombstones: tuple[int, int, int | None]) -> DataFrame:
    """Returns tombstones: key, position, and the key to which the row moved."""
    rows = [(key, at(lsn), None if target is None else (target,)) for key, lsn, target in tombstones]
    tombstone_rows = spark.createDataFrame(rows, BURIED).withColumn(TOMBSTONE_KEY, tombstone_key(["id"]))
    return tombstone_rows.withColumn(MOVED_TO, F.to_json(NEW_KEY, LOSSLESS_JSON)).select(
        TOMBSTONE_KEY, POSITION_COLUMN, MOVED_TO
    )


def keys(spark: SparkSession, *ids: int) -> DataFrame:
    return spark.createDataFrame([(i,) for i in ids], KEY).withColumn(TOMBSTONE_KEY, tombstone_key(["id"]))


def tombstone_rows(rows: DataFrame, ids: DataFrame, *columns: str) -> list[Row]:
    return sorted(rows.join(ids, TOMBSTONE_KEY).select("id", f"{POSITION_COLUMN}.major", *columns).collect())


def test_moves_are_kept_by_compaction(spark: SparkSession, tmp_path: Path) -> None:
    tombstones = Tombstones(spark, str(tmp_path / "t"))
    moves = [(1, 40, 2), (1, 10, 2), (1, 60, 3), (1, 90, None), (4, 50, None)]
    for move in moves:
        tombstones.write(tombstones_of(spark, move))
    for lsn in range(FILES_PER_SIZE):
        tombstones.write(tombstones_of(spark, (5, lsn, None)))
        tombstones.compact()
    assert len(list((tmp_path / "t").glob("*.parquet"))) > len(tombstones._table.files()), "some files were compacted"
    wanted = keys(spark, 1, 4)
    found = tombstones.matching(wanted).withColumn("moved", F.col(MOVED_AT)["major"])
    assert tombstone_rows(found, wanted, "moved") == [(1, 90, 60), (4, 50, None)]
    assert tombstone_rows(tombstones.moves(wanted), wanted, MOVED_TO) == [(1, 40, '{"id":2}'), (1, 60, '{"id":3}')]


def test_tombstones_are_found_by_key_columns(spark: SparkSession, tmp_path: Path) -> None:
    """A refused and an applicable change of one key look up the same tombstone."""
    tombstones = Tombstones(spark, str(tmp_path / "t"))
    tombstones.write(tombstones_of(spark, (1, 40, 2), (1, 60, None), (4, 50, None), (5, 70, None)))
    found = tombstones.matching(keys(spark, 1, 1, 4, 9), ["id"])
    assert found.columns == ["id", POSITION_COLUMN, MOVED_AT]
    rows = found.select("id", f"{POSITION_COLUMN}.major", F.col(MOVED_AT)["major"]).collect()
    assert sorted(rows) == [(1, 60, 40), (4, 50, None)]


def test_removing_a_key_removes_moves_to_it(spark: SparkSession, tmp_path: Path) -> None:
    """The tombstones of the moved rows stay, because these rows may belong to another subject."""
    tombstones = Tombstones(spark, str(tmp_path / "t"))
    tombstones.write(tombstones_of(spark, (1, 40, 2), (1, 60, 3), (2, 39, None), (2, 50, 4)))
    tombstones.remove(tombstones_of(spark, (2, 50, None)).select(TOMBSTONE_KEY, POSITION_COLUMN))
    wanted = keys(spark, 1, 2)
    assert tombstone_rows(tombstones.matching(wanted), wanted) == [(1, 60)]
    assert tombstone_rows(tombstones.moves(wanted), wanted, MOVED_TO) == [(1, 60, '{"id":3}')]
    assert '"id":2' not in str(tombstones._table.rows().collect())
    stored = tombstones._table.rows().withColumnRenamed("_key", TOMBSTONE_KEY)
    assert tombstone_rows(stored, wanted) == [(1, 40), (1, 60)]
