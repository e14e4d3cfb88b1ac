"""Small files of bronze and accounts are compacted, next to readers and writers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.batches.rules import Rules
from ingest.changelog.accounting import Account
from ingest.changelog.envelope import RECORD, events
from ingest.changelog.naming import Naming
from ingest.delta import compaction
from ingest.delta.compaction import FILES_PER_SIZE, files_due
from ingest.delta.data_file import DataFile
from ingest.delta.delta_table import Table
from ingest.lakehouse.accounts import Accounts
from ingest.lakehouse.bronze import Bronze, CaptureState
from ingest.loop.merge import Merge
from ingest.names import Lakehouse
from ingest.tuning import DEFAULT_TUNING, Tuning

pytestmark = pytest.mark.spark
OFTEN = replace(DEFAULT_TUNING, append_only_files_per_size=FILES_PER_SIZE)
"""Compacts append-only tables as often as others, so that fewer commits are needed."""


def opened(spark: SparkSession, path: str | Path, tuning: Tuning = OFTEN) -> Bronze:
    return Bronze(spark, str(path), tuning=tuning)


def batch(spark: SparkSession, number: int) -> DataFrame:
    """Returns three records: two inserts, and a delete of a row that never existed."""
    value = '{"op":"%s","%s":{"id":%d},"source":{"lsn":%d,"schema":"s","table":"t","ts_ms":0}}'
    changes = enumerate([("c", "after"), ("c", "after"), ("d", "before")], start=3 * number)
    records = [
        ("t", 0, offset, None, None, None, bytearray((value % (*what, offset, offset)).encode()))
        for offset, what in changes
    ]
    return events(spark.createDataFrame(records, RECORD), Naming())


def capture(spark: SparkSession, bronze: Bronze, numbers: range) -> None:
    for number in numbers:
        bronze.append(batch(spark, number), CaptureState(number, {"t": {0: 3 * number + 3}}))


def offsets(rows: DataFrame) -> list[int]:
    return sorted(r.offset for r in rows.select("offset").collect())


def test_small_captured_files_are_compacted(spark: SparkSession, tmp_path: Path) -> None:
    bronze = opened(spark, tmp_path / "b")
    capture(spark, bronze, range(1, FILES_PER_SIZE + 4))
    before = bronze.rows().orderBy("offset").collect()
    bronze.compact(FILES_PER_SIZE - 1)
    assert len(bronze._table.files()) == FILES_PER_SIZE + 3, "too few batches are merged yet"
    bronze.compact(FILES_PER_SIZE + 1)
    # One file of all merged batches, and two of waiting ones.
    assert len(bronze._table.files()) == 3
    assert bronze.rows().orderBy("offset").collect() == before
    assert offsets(bronze.between(FILES_PER_SIZE + 1, FILES_PER_SIZE + 3)) == list(
        range(3 * FILES_PER_SIZE + 6, 3 * FILES_PER_SIZE + 12)
    )
    assert offsets(bronze.between(2, 4)) == list(range(9, 15)), "a part of a file"
    assert offsets(bronze.between(0, FILES_PER_SIZE + 3)) == [r.offset for r in before]


def test_capture_continues_after_a_compaction(spark: SparkSession, tmp_path: Path) -> None:
    bronze, path = opened(spark, tmp_path / "b"), str(tmp_path / "b")
    capture(spark, bronze, range(1, FILES_PER_SIZE + 1))
    opened(spark, path).compact(FILES_PER_SIZE)
    capture(spark, bronze, range(FILES_PER_SIZE + 1, FILES_PER_SIZE + 2))
    again = Bronze(spark, path).captured()
    assert (again.batch, again.offsets) == (FILES_PER_SIZE + 1, {"t": {0: 3 * FILES_PER_SIZE + 6}})
    log = spark.sql(f"DESCRIBE HISTORY delta.`{path}`").where("version > 0").orderBy("version")
    (compaction,) = log.where(F.col("userMetadata").isNull()).collect()
    assert compaction["operation"] == "OPTIMIZE"


@pytest.mark.long
def test_compacted_file_is_bounded(spark: SparkSession, tmp_path: Path) -> None:
    """An erasure rewrites each touched file, so its cost must not grow with the events around the erased ones."""
    bronze = opened(spark, tmp_path / "b", replace(OFTEN, bronze_file_rows=12))
    capture(spark, bronze, range(1, FILES_PER_SIZE + 1))
    assert bronze.compact(FILES_PER_SIZE)
    files = bronze._table.files().values()
    assert sorted(f.rows for f in files) == [3] * (FILES_PER_SIZE - 4) + [12]
    assert max(f.bounds("batch") or () for f in files if f.rows == 12) == (1, 4), "the batches that were captured first"
    assert not bronze.compact(FILES_PER_SIZE), "a full file is not compacted again"


@pytest.mark.long
def test_batches_of_a_file_are_read_by_page(spark: SparkSession, tmp_path: Path) -> None:
    bronze = opened(spark, tmp_path / "b")
    capture(spark, bronze, range(1, FILES_PER_SIZE + 1))
    bronze.compact(FILES_PER_SIZE)
    some = bronze.between(2, 4)
    scan = some._jdf.queryExecution().sparkPlan().collectLeaves().apply(0)
    assert "GreaterThan(batch,2), LessThanOrEqual(batch,4)" in scan.metadata().apply("PushedFilters")
    assert offsets(some) == list(range(9, 15))


@pytest.mark.long
def test_files_are_compacted_in_the_order_of_capture(spark: SparkSession, tmp_path: Path) -> None:
    bronze = opened(spark, tmp_path / "b")
    capture(spark, bronze, range(1, FILES_PER_SIZE + 1))
    bronze.compact(FILES_PER_SIZE)
    (file,) = bronze._table.files()
    rows = spark.read.parquet(str(tmp_path / "b" / file)).select("offset").collect()
    assert [r.offset for r in rows] == sorted(r.offset for r in rows)


@pytest.mark.long
def test_statistics_of_batches_outlast_a_compaction(spark: SparkSession, tmp_path: Path) -> None:
    bronze = opened(spark, tmp_path / "b")
    capture(spark, bronze, range(1, FILES_PER_SIZE + 3))
    bronze.record_batch_stats(FILES_PER_SIZE + 1, FILES_PER_SIZE + 2, [{"count": 3}])
    assert bronze.compact(FILES_PER_SIZE + 1)
    assert list(bronze.batch_stats()) == [FILES_PER_SIZE + 1], "the writer that compacts has the statistics"


def test_erasure_during_a_compaction_wins(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bronze, other = (opened(spark, tmp_path / "b") for _ in range(2))
    capture(spark, bronze, range(1, FILES_PER_SIZE + 1))
    written = Table._written

    def written_too_late(transaction: Any, frame: DataFrame) -> list[Any]:
        monkeypatch.undo()
        rows = [("t", 0, 3, "r")]
        other.empty(spark.createDataFrame(rows, "topic string, partition int, offset long, request string"))
        return written(transaction, frame)

    monkeypatch.setattr(Table, "_written", staticmethod(written_too_late))
    assert bronze.compact(FILES_PER_SIZE)
    assert len(bronze._table.files()) == FILES_PER_SIZE
    assert [row.offset for row in bronze.emptied().collect()] == [3]
    assert bronze.compact(FILES_PER_SIZE), "the next compaction is not blocked"


@pytest.mark.long
def test_accounts_of_several_pipelines_share_files(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    pipelines = {name: Accounts(spark, path, name, OFTEN) for name in ("one", "other")}
    for through_batch in range(1, FILES_PER_SIZE + 1):
        for accounts in pipelines.values():
            accounts.add(through_batch - 1, through_batch, [Account("s.t", 5, 3, 2)])
            accounts.compact()
    assert len(pipelines["one"]._table.files()) < FILES_PER_SIZE
    for accounts in pipelines.values():
        assert accounts.merged_through() == FILES_PER_SIZE
        assert sorted(r.upto_batch for r in accounts.rows().collect()) == list(range(1, FILES_PER_SIZE + 1))


def test_two_pipelines_compact_at_once(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (Accounts(spark, str(tmp_path / "a"), name, OFTEN) for name in ("one", "other"))
    for through_batch in range(1, FILES_PER_SIZE):
        one.add(through_batch - 1, through_batch, [Account("s.t", 5, 3, 2)])

    def files_due_too_late(files: Iterable[DataFile], files_per_size: int) -> list[DataFile]:
        monkeypatch.setattr(compaction, "files_due", files_due)
        found = files_due(files, files_per_size=files_per_size)
        assert found
        other.add(0, 1, [Account("s.t", 4, 4)])
        other.compact()
        return found

    monkeypatch.setattr(compaction, "files_due", files_due_too_late)
    one.add(FILES_PER_SIZE - 1, FILES_PER_SIZE, [Account("s.t", 5, 3, 2)])
    one.compact()
    assert len(other._table.files()) == 1, "the other pipeline was faster"
    assert (one.merged_through(), one.rows().count(), other.rows().count()) == (FILES_PER_SIZE, FILES_PER_SIZE, 1)


@pytest.mark.long
def test_one_table_is_compacted_per_slice(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All tables gather the same number of files per slice; one is compacted at a time."""
    folds: dict[int, list[str]] = defaultdict(list)

    def exchange(table: Table, *given: Any) -> None:
        folds[number].append(table.path)
        real(table, *given)

    real = Table.rewrite
    monkeypatch.setattr(Table, "rewrite", exchange)
    lakehouse = Lakehouse(str(tmp_path))
    tuning = replace(OFTEN, rewritable_bytes=0)
    bronze = opened(spark, lakehouse.bronze("p"), tuning)
    merge = Merge(spark, "p", lakehouse, Rules(primary_keys={"s.t": ("id",)}, tuning=tuning), bronze)
    for number in range(1, FILES_PER_SIZE + 4):
        capture(spark, bronze, range(number, number + 1))
        merge.step(number)
    assert [len(of_a_slice) for of_a_slice in folds.values()] == [1, 1, 1, 1], folds
    assert len({path for (path,) in folds.values()}) == 4, folds
