"""Digests depend on content alone, and accounts detect every missing event."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ingest.backfill.replay import Case, Delivery, replay
from ingest.batches.rules import DEFAULT_PLACEHOLDER, Rules
from ingest.lakehouse.accounts import Accounts
from ingest.lakehouse.bronze import Bronze
from ingest.loop.merge import Merge
from ingest.names import Lakehouse
from ingest.pipeline.status import status
from ingest.quality.accounting import audit
from ingest.quality.digest import digest_of
from ingest.values.types import parse
from tests.changelogs import Topic, write

pytestmark = pytest.mark.spark
TYPES = {"id": parse("int64"), "v": parse("string"), "d": parse("decimal(10,2)")}


def test_digest_depends_only_on_rows(spark: SparkSession) -> None:
    def digest(rows: str) -> str:
        return digest_of(spark.sql(f"SELECT * FROM VALUES {rows} AS t(id, v, d)"), TYPES).digest

    rows = digest("(1L, 'a', 1.50BD), (2L, NULL, 2.00BD)")
    assert digest("(2L, NULL, 2.00BD), (1L, 'a', 1.50BD)") == rows
    assert digest("(1L, 'a', 1.50BD), (2L, '', 2.00BD)") != rows
    assert digest("(1L, 'a', 1.50BD), (2L, NULL, 2.01BD)") != rows
    assert digest("(1L, 'a', 1.50BD)") != rows
    twice = digest("(1L, 'a', 1.50BD), (1L, 'a', 1.50BD)")
    assert twice not in (rows, digest("(2L, 'b', 1.50BD), (2L, 'b', 1.50BD)"))


def test_audit_finds_missing_events(spark: SparkSession, tmp_path: Path) -> None:
    topic = Topic()
    for i in range(6):
        topic.change("c", 10 + i, {"id": i, "v": "a"})
    topic.record(None, None)
    folder = write(tmp_path / "events", topic.records, None)
    case = Case("shop", (folder / "events.jsonl",), None, tmp_path / "out")
    list(replay(spark, [case], Delivery(batch_size=3), "delta"))
    layout = Lakehouse(str(tmp_path / "out"))
    bronze, accounts = Bronze(spark, layout.bronze("shop")).rows(), Accounts(spark, layout.accounts, "shop").rows()

    whole = audit(bronze, accounts)
    assert whole.problems == []
    assert (whole.merged, whole.waiting) == (7, 0)
    assert whole.tables["public.orders"]["applied"] == 6
    assert [(p.first, p.last, p.records) for p in whole.partitions] == [(0, 6, 7)]
    part = audit(bronze, accounts, 2, 2)
    assert (part.problems, part.merged, part.waiting) == ([], 3, 0)

    without = audit(bronze, accounts.where("upto_batch != 2"))
    assert without.problems == ["batches 2 to 2 have no account"]
    lost = audit(bronze.where("offset != 4"), accounts)
    assert lost.problems == ["batches 2 to 2: 3 records are accounted for, bronze holds 2"]
    tampered = audit(bronze, accounts.withColumn("applied", F.col("applied") + 1))
    assert any("public.orders: 6 read are not 8 applied" in p for p in tampered.problems)


def test_status_counts_live_pending_and_deleted_rows(spark: SparkSession, tmp_path: Path) -> None:
    topic = Topic()
    for i in range(4):
        topic.change("c", 10 + i, {"id": i, "v": "a"})
    topic.change("d", 20, before={"id": 0, "v": "a"})
    topic.change("u", 21, {"id": 9, "v": DEFAULT_PLACEHOLDER})
    topic.record({"id": 5}, {})
    folder = write(tmp_path / "events", topic.records, None)
    list(replay(spark, [Case("shop", (folder / "events.jsonl",), None, tmp_path / "out")], Delivery(4), "delta"))
    found = status(spark, "shop", Lakehouse(str(tmp_path / "out")))
    assert (found.captured, found.merged, found.records) == (2, 2, 7)
    assert found.quarantined == {"unknown-op": 1}
    (table,) = found.tables
    assert (table.table, table.primary_key) == ("public.orders", ("id",))
    assert (table.rows, table.pending, table.tombstones, table.quarantined) == (3, 1, 1, 0)


@pytest.mark.parametrize("placed", [1, pytest.param(0, marks=pytest.mark.long)], ids=["positions", "offsets alone"])
def test_second_merge_of_a_slice_writes_no_row(spark: SparkSession, tmp_path: Path, placed: int) -> None:
    topic = Topic()
    topic.change("c", 10 * placed, {"id": 1, "v": "a"})
    topic.change("c", 11 * placed, {"id": 2, "v": "b"})
    topic.change("d", 12 * placed, before={"id": 1, "v": "a"})
    folder = write(tmp_path / "events", topic.records, None)
    case = Case("shop", (folder / "events.jsonl",), None, tmp_path / "out")
    list(replay(spark, [case], Delivery(), "delta"))
    layout = Lakehouse(str(tmp_path / "out"))
    silver = Path(layout.silver("shop", "public.orders"))
    files, commits = set(silver.glob("*.parquet")), len(list(silver.glob("_delta_log/*.json")))
    shutil.rmtree(layout.accounts)
    (account,) = Merge(spark, "shop", layout, Rules(), Bronze(spark, layout.bronze("shop"))).step()
    assert (account.read, account.applied, account.superseded) == (3, 2, 1)
    assert set(silver.glob("*.parquet")) == files
    assert len(list(silver.glob("_delta_log/*.json"))) == commits + 1  # The commit records the slice.


@pytest.mark.long
@pytest.mark.parametrize("partial", [False, True], ids=["whole images", "a partial image"])
def test_repeated_event_at_its_position_is_superseded(spark: SparkSession, tmp_path: Path, partial: bool) -> None:
    topic = Topic()
    for _ in range(2):
        topic.change("c", 10, {"id": 1, "v": "a", "w": None})
        topic.change("u", 11, {"id": 1, "v": DEFAULT_PLACEHOLDER if partial else "a", "w": "b"})
        topic.change("c", 12, {"id": 2, "v": "a", "w": None})
        topic.change("d", 13, before={"id": 2, "v": "a", "w": None})
        topic.change("c", 14, {"id": 3, "v": "a", "w": None})
    other = topic.change("c", 14, {"id": 3, "v": "another at the same position", "w": None})
    folder = write(tmp_path / "events", topic.records, None)
    case = Case("shop", (folder / "events.jsonl",), None, tmp_path / "out")
    list(replay(spark, [case], Delivery(batch_size=5), "delta"))
    layout = Lakehouse(str(tmp_path / "out"))
    batches = Accounts(spark, layout.accounts, "shop").rows().orderBy("upto_batch").collect()
    assert [(b["read"], b["applied"]) for b in batches] == [(5, batches[0]["applied"]), (5, 0), (1, 1)]
    rows = spark.read.format("delta").load(layout.silver("shop", "public.orders")).orderBy("id").collect()
    assert [(r["id"], r["v"], r["_position"]["offset"]) for r in rows] == [
        (1, "a", 1),
        (3, other["value"]["after"]["v"], other["offset"]),
    ]
