"""Files that tasks with few rows write directly equal those of Delta's writer."""

from __future__ import annotations

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.delta.delta_table import NO_STATISTICS, Table
from ingest.delta.txn_versions import TxnVersion
from ingest.spark.prepared import run_prepared

pytestmark = pytest.mark.spark
_COLUMNS = {
    "id": "string",
    "n": "bigint",
    "price": "decimal(9,2)",
    "at": "timestamp",
    "tags": "array<string>",
    "at_least": "struct<a: int, b: int>",
}
_ROWS: tuple[tuple[str, ...], ...] = (
    ("'é\"\\\\ \n'", "1", "1.50", "timestamp'2026-01-01 00:00:00.123456'", "array('x', null)", "struct(1, 2)"),
    ("repeat('long ', 40)", "-7", "null", "timestamp'1900-01-01 00:00:00'", "null", "null"),
    ("null", "null", "-0.01", "null", "array()", "struct(null, 5)"),
)
_PROPERTIES = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"}
_KEY_ALONE = _PROPERTIES | {"delta.dataSkippingStatsColumns": "id,n,at,price"}


def _rows(spark: SparkSession, rows: Iterable[tuple[str, ...]]) -> DataFrame:
    kinds = _COLUMNS.items()
    of_rows = (", ".join(f"CAST({v} AS {k}) AS {n}" for v, (n, k) in zip(row, kinds, strict=True)) for row in rows)
    typed = [f"SELECT {columns}" for columns in of_rows]
    return spark.sql(" UNION ALL ".join(typed)) if typed else _rows(spark, _ROWS).where("false")


def _unchanged(rows: DataFrame) -> DataFrame:
    return rows.coalesce(1)


def _written(spark: SparkSession, path: Path, frame: DataFrame, few: bool, new: dict[str, str]) -> dict[str, Any]:
    table = Table(spark, str(path))
    frame = run_prepared(_unchanged, (), frame) if few else frame.coalesce(1)
    table.commit(frame, properties=new, is_small=few, txn_version=TxnVersion("test", 1, must_advance=False))
    log = (path / "_delta_log" / "00000000000000000000.json").read_text(encoding="utf-8")
    return {next(iter(a)): next(iter(a.values())) for a in map(json.loads, log.splitlines())}


@pytest.mark.parametrize("new", [_PROPERTIES, _KEY_ALONE, NO_STATISTICS], ids=["all", "key", "none"])
def test_file_and_statistics_equal_those_of_delta(spark: SparkSession, tmp_path: Path, new: dict[str, str]) -> None:
    rows = _rows(spark, _ROWS)
    ours, deltas = (_written(spark, tmp_path / str(few), rows, few, new) for few in (True, False))
    assert json.loads(ours["add"]["stats"]) == json.loads(deltas["add"]["stats"])
    assert ours["commitInfo"]["operationMetrics"].keys() == deltas["commitInfo"]["operationMetrics"].keys()
    assert ours["commitInfo"]["operationMetrics"]["numOutputRows"] == "3"
    read = [spark.read.format("delta").load(str(tmp_path / str(few))) for few in (True, False)]
    assert read[0].schema == read[1].schema
    assert sorted(map(repr, read[0].collect())) == sorted(map(repr, read[1].collect()))
    parquet = [spark.read.parquet(str(tmp_path / str(few) / "part-*")).schema for few in (True, False)]
    assert parquet[0] == parquet[1]


@pytest.mark.parametrize("few", [True, False])
def test_changes_are_in_the_change_data_feed(spark: SparkSession, tmp_path: Path, few: bool) -> None:
    _written(spark, tmp_path, _rows(spark, ()), few, _PROPERTIES)
    kept, changed = (_rows(spark, _ROWS).withColumn("_change_type", v) for v in (F.lit(None), F.lit("insert")))
    both = run_prepared(_unchanged, (), kept.unionByName(changed), is_small=few)
    (file,) = Table(spark, str(tmp_path)).commit(both, is_small=few)
    assert file.rows == len(_ROWS)
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1).load(str(tmp_path))
    assert {row["_change_type"] for row in feed.collect()} == {"insert"}
    written = feed.select(*_COLUMNS)
    live = spark.read.format("delta").load(str(tmp_path))
    assert sorted(map(repr, written.collect())) == sorted(map(repr, live.collect()))
    assert live.count() == len(_ROWS)


def test_no_row_makes_no_file(spark: SparkSession, tmp_path: Path) -> None:
    assert "add" not in _written(spark, tmp_path, _rows(spark, ()), True, _PROPERTIES)
    assert list(tmp_path.glob("*.parquet")) == []


def test_constraints_of_the_table_are_enforced(spark: SparkSession, tmp_path: Path) -> None:
    table = Table(spark, str(tmp_path))
    frame = run_prepared(_unchanged, (), _rows(spark, _ROWS))
    table.commit(frame, properties=_PROPERTIES, is_small=True)
    spark.sql(f"ALTER TABLE delta.`{tmp_path}` ADD CONSTRAINT positive CHECK (n IS NULL OR n > -10)")
    table.commit(frame, is_small=True)
    low = run_prepared(_unchanged, (), _rows(spark, (("'x'", "-11", "0", "null", "null", "null"),)))
    with pytest.raises(Py4JJavaError, match="positive"):
        table.commit(low, is_small=True)
    assert table.rows().count() == 2 * len(_ROWS)


def test_concurrent_writes(spark: SparkSession, tmp_path: Path) -> None:
    rows = [run_prepared(_unchanged, (), _rows(spark, (_ROWS[i % 3],) * (i + 1)), once=True) for i in range(12)]

    def write(number: int) -> list[tuple[int, str]]:
        table = Table(spark, str(tmp_path / str(number)))
        written = []
        for _ in range(4):
            (file,) = table.commit(rows[number], properties=_PROPERTIES, is_small=True)
            written.append((file.rows, file.action.stats()))
        return written

    with ThreadPoolExecutor(4) as several:
        found = list(several.map(write, range(len(rows))))
    for number, written in enumerate(found):
        assert written == [(number + 1, written[0][1])] * 4
