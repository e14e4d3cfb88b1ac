"""The quarantine: each event once, found by file statistics, in few files, and removed by an erasure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.envelope import BATCH, RECORD
from ingest.delta import delta_table
from ingest.delta.data_file import DataFile
from ingest.lakehouse.bronze import COORDINATES
from ingest.lakehouse.quarantine import Quarantine
from ingest.spark.local_rows import local_rows
from ingest.tuning import DEFAULT_TUNING

pytestmark = pytest.mark.spark
_TEXTS = [T.StructField(name, T.StringType()) for name in ("table", "code", "reason")]
_ADDED = T.StructType([*RECORD.fields, T.StructField(BATCH, T.LongType()), *_TEXTS])
_LONG = "a-topic-whose-name-is-longer-than-the-thirty-two-characters-of-a-statistic"


def events(spark: SparkSession, topic: str, offsets: Iterable[int], batch: int) -> DataFrame:
    """Returns events as a merge quarantines them."""
    common = {
        "partition": 0,
        "timestamp": datetime(2026, 1, 1, tzinfo=UTC),
        "headers": None,
        "key": b"k",
        "value": b"v",
    }
    named = {"table": "shop.orders", "code": "no-key", "reason": "why", BATCH: batch}
    return local_rows(spark, [{"topic": topic, "offset": o, **common, **named} for o in offsets], _ADDED)


def stored_events(quarantine: Quarantine) -> list[tuple[str, int]]:
    return sorted((row["topic"], row["offset"]) for row in quarantine.rows().select("topic", "offset").collect())


def read_files(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Records the number of files that each read opens."""
    opened: list[int] = []
    rows_in = delta_table.Table.rows_in

    def counted(table: delta_table.Table, files: Iterable[DataFile]) -> DataFrame:
        some = list(files)
        opened.append(len(some))
        return rows_in(table, some)

    monkeypatch.setattr(delta_table.Table, "rows_in", counted)
    return opened


@pytest.mark.parametrize("topic", ["t", _LONG])
def test_batch_reads_only_files_that_may_hold_its_events(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topic: str
) -> None:
    quarantine = Quarantine(spark, str(tmp_path / "q"), "p")
    for batch in range(6):
        quarantine.add(events(spark, topic, range(10 * batch, 10 * batch + 10), batch))
    opened = read_files(monkeypatch)
    quarantine.add(events(spark, topic, range(60, 70), 6))
    assert opened == [], "no file holds such offsets"
    quarantine.add(events(spark, topic, [5, 15], 7))
    assert opened == [2], "those of the first two batches"
    assert stored_events(quarantine) == [(topic, o) for o in range(70)]


def test_repeated_events_are_stored_once(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "q")
    one, other = Quarantine(spark, path, "p"), Quarantine(spark, path, "other")
    one.add(events(spark, "t", range(5), 1))
    one.add(events(spark, "u", range(5), 1))
    other.add(events(spark, "t", range(3), 1))
    # A backfill numbers its own batches, and a batch that died is repeated as a whole.
    Quarantine(spark, path, "p").add(events(spark, "t", range(3, 8), 40))
    assert stored_events(one) == [*(("t", o) for o in range(8)), *(("u", o) for o in range(5))]
    assert stored_events(other) == [("t", o) for o in range(3)]


@pytest.mark.long
def test_compacted_events_can_be_removed(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "q")
    quarantine, table = Quarantine(spark, path, "p"), delta_table.Table(spark, path)
    batches = DEFAULT_TUNING.append_only_files_per_size
    for batch in range(batches):
        assert not quarantine.compact()
        quarantine.add(events(spark, "t", [2 * batch, 2 * batch + 1], batch))
    assert quarantine.compact()
    assert len(table.files()) == 1
    assert not quarantine.compact()
    quarantine.add(events(spark, "t", [3, 1000], 99))
    quarantine.remove(quarantine.rows().where("offset in (3, 1000)"))
    assert stored_events(quarantine) == [("t", o) for o in range(2 * batches) if o != 3]


def test_older_table_without_statistics_gets_them(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "q")
    with monkeypatch.context() as before:
        before.setattr("ingest.lakehouse.quarantine._STATISTICS", {"delta.dataSkippingNumIndexedCols": "0"})
        Quarantine(spark, path, "p").add(events(spark, "t", range(4), 1))
    quarantine = Quarantine(spark, path, "p")
    quarantine.add(events(spark, "t", range(2, 6), 2))
    quarantine.add(events(spark, "t", range(6, 8), 3))
    assert stored_events(quarantine) == [("t", o) for o in range(8)]
    bounds = sorted(f.bounds("offset") or (-1, -1) for f in delta_table.Table(spark, path).files().values())
    assert bounds == [(-1, -1), (4, 5), (6, 7)]
    table = delta_table.Table(spark, path)
    assert all(set(f.statistics.get("minValues", {})) <= set(COORDINATES) for f in table.files().values())
    assert quarantine.rows().where(F.col("value") == F.lit(b"v")).count() == 8
