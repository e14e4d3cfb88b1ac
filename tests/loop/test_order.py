"""Events whose order is unknown: positions that restart, a key in two partitions, an event below the gc horizon."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ingest.backfill.replay import Case, Delivery, replay
from ingest.batches.group_stats import groups_by_slice
from ingest.batches.rules import DEFAULT_PLACEHOLDER, Rules
from ingest.errors import ChangelogUnusable
from ingest.lakehouse.bronze import Bronze
from ingest.lakehouse.bronze.summary import BronzeSummary
from ingest.lakehouse.quarantine import Quarantine
from ingest.loop.capture import Capture
from ingest.loop.merge import Merge
from ingest.loop.position_regression import PositionRegression
from ingest.names import Lakehouse
from ingest.sources.files import FileSource, lines
from ingest.upkeep.tombstone_gc import collect_garbage, input_horizons
from tests.changelogs import Record, Topic, write

pytestmark = pytest.mark.spark


def sent(*lsns: int) -> list[Record]:
    """Returns events in this order, each right after the commit before it."""
    topic = Topic()
    for lsn in lsns:
        record = topic.change("u", lsn, {"id": lsn, "v": "a"}, timestamp=lsn)
        record["value"]["source"] |= {"name": "shop", "sequence": f'["{lsn - 1}","{lsn}"]'}
    return topic.records


@pytest.fixture(scope="module")
def captured(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Bronze:
    """Returns three batches: a connector restarts after position 300, then the log restarts."""
    root = tmp_path_factory.mktemp("restarts")
    folder = write(root / "events", sent(100, 200, 300, 200, 300, 400, 150, 250, 600), None)
    bronze = Bronze(spark, str(root / "bronze"))
    capture = Capture(spark, FileSource(list(lines([folder / "events.jsonl"]))), bronze, Rules().naming, 3)
    while capture.step():
        pass
    assert bronze.captured().batch == 3
    return bronze


def checked(spark: SparkSession, bronze: Bronze, *slices: tuple[int, int], few: bool = True) -> None:
    restarts = PositionRegression(spark, bronze, BronzeSummary(bronze, "p"), stops=True)
    for after, through_batch in slices:
        restarts.check(after, through_batch, groups_by_slice(bronze.between(after, through_batch), F.lit(0), few)[0])


@pytest.mark.parametrize("few", [True, False], ids=["compared while they are counted", "read"])
@pytest.mark.parametrize(
    "slices",
    [[(0, 1), (1, 2), (2, 3)], [(2, 3)], [(0, 3)]],
    ids=["batch by batch", "a run that starts", "all at once"],
)
def test_restarted_log_stops_the_merge(
    spark: SparkSession, captured: Bronze, slices: list[tuple[int, int]], few: bool
) -> None:
    with pytest.raises(ChangelogUnusable) as stopped:
        checked(spark, captured, *slices, few=few)
    assert "at offset 6, written 1970-01-01T00:00:00.150Z goes back from 399:0 of the log of shop to 149:0" in str(
        stopped.value
    )
    assert "source: {epochs:" in stopped.value.remedy


@pytest.mark.parametrize("back", [False, True], ids=["on and on", "back"])
def test_batch_statistics_detect_position_regressions_between_batches(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, back: bool
) -> None:
    lsns = [100, 200, 300, *([150, 350, 400] if back else [350, 400, 500])]
    folder = write(tmp_path / "events", sent(*lsns), None)
    lakehouse = Lakehouse(str(tmp_path / "lake"))
    bronze = Bronze(spark, lakehouse.bronze("shop"))
    source = FileSource(list(lines([folder / "events.jsonl"])))
    capture = Capture(spark, source, bronze, Rules().naming, 3, merges=True)
    while capture.step():
        pass
    merge = Merge(spark, "shop", lakehouse, Rules(), bronze, slice_events=100)
    if back:
        with pytest.raises(
            ChangelogUnusable, match=r"at offset 3, .* goes back from 299:0 of the log of shop to 149:0"
        ):
            merge.step(capture.captured.batch)
        return
    monkeypatch.setattr(PositionRegression, "_search", None)
    assert [a.applied for a in merge.step(capture.captured.batch)] == [6]


def test_position_regression_of_mysql_names_the_gtid(spark: SparkSession, tmp_path: Path) -> None:
    """Users can look the GTID up on both servers."""
    topic = Topic()
    for file, pos, gtid in ((7, 100, "a:1"), (7, 200, "a:2"), (1, 50, "b:1")):
        record = topic.change("u", pos, {"id": pos})
        record["value"]["source"] = {
            **{"connector": "mysql", "name": "shop", "db": "shop", "table": "orders"},
            **{"file": f"binlog.{file:06}", "pos": pos, "row": 0, "gtid": gtid},
        }
    folder = write(tmp_path / "events", topic.records, None)
    bronze = Bronze(spark, str(tmp_path / "bronze"))
    Capture(spark, FileSource(list(lines([folder / "events.jsonl"]))), bronze, Rules().naming, 3).step()
    with pytest.raises(ChangelogUnusable, match=r"from 7:200 of the log of shop to 1:50 \(GTID b:1\)"):
        checked(spark, bronze, (0, 1))


def test_repeated_events_are_no_position_regression(spark: SparkSession, captured: Bronze) -> None:
    checked(spark, captured, (0, 1), (1, 2))
    checked(spark, captured, (0, 2), few=False)


def test_key_in_two_partitions_without_positions_warns_or_stops(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    records = []
    for partition in (0, 1):
        for i in (1, 2 + partition):
            value = {"op": "c", "after": {"id": i, "v": partition}, "source": {"schema": "public", "table": "orders"}}
            key = {"id": i}
            records.append({"topic": "t", "partition": partition, "offset": i, "key": key, "value": value})

    def replayed(name: str, settings: dict[str, Any]) -> None:
        folder = write(tmp_path / "events" / name, records, settings)
        case = Case(name, (folder / "events.jsonl",), folder / "tables.json", tmp_path / name)
        list(replay(spark, [case], Delivery(batch_size=2), "delta"))

    replayed("said", {})
    (warning,) = [r.getMessage() for r in caplog.records if "public.orders" in r.getMessage()]
    assert "1 keys of a batch have changes in two partitions" in warning
    with pytest.raises(ChangelogUnusable, match="can't be known"):
        replayed("stopped", {"keys_in_two_partitions": "stop"})


@pytest.mark.long
@pytest.mark.parametrize("partial", [False, True], ids=["whole images", "partial images"])
def test_event_older_than_the_gc_horizon_is_quarantined(spark: SparkSession, tmp_path: Path, partial: bool) -> None:
    v = DEFAULT_PLACEHOLDER if partial else "late"
    topic = Topic()
    topic.change("c", 10, {"id": 1, "v": "lives"})
    topic.change("c", 11, {"id": 2, "v": "a"})
    topic.change("d", 20, before={"id": 2, "v": "a"})
    topic.change("c", 30, {"id": 3, "v": "a"})
    topic.change("d", 40, before={"id": 3, "v": "a"})
    older = len(topic.records)
    topic.change("u", 15, {"id": 2, "v": "late"})
    topic.change("u", 35, {"id": 3, "v": "late"})
    topic.change("u", 14, {"id": 1, "v": v})
    topic.change("d", 16, before={"id": 9, "v": "never seen"})
    folder = write(tmp_path / "events", topic.records[:older], None)
    case = Case("shop", (folder / "events.jsonl",), None, tmp_path / "out")
    list(replay(spark, [case], Delivery(), "delta"))
    layout = Lakehouse(str(tmp_path / "out"))
    bronze = Bronze(spark, layout.bronze("shop"))

    def collected(earliest: int, dry_run: bool = False) -> tuple[int, int]:
        horizons = input_horizons(spark, bronze, {topic.name: {0: earliest}})
        (table,) = collect_garbage(spark, "shop", layout, bronze, horizons, dry_run)
        return table.tombstones, table.forgotten

    assert collected(0) == (2, 0)  # The topic still holds everything.
    assert collected(3, dry_run=True) == (2, 1)
    assert collected(3) == (2, 1)
    assert collected(3) == (1, 0)
    late = write(tmp_path / "late", topic.records, None)
    capture = Capture(spark, FileSource(list(lines([late / "events.jsonl"]))), bronze, Rules().naming, 100)
    capture.step()
    (account,) = Merge(spark, "shop", layout, Rules(), bronze).step()
    assert (account.read, account.applied, account.superseded, account.quarantined) == (4, 2, 1, 1)
    quarantined = Quarantine(spark, layout.quarantine, "shop").rows().collect()
    assert [(q["offset"], q["code"]) for q in quarantined] == [(older, "older-than-horizon")]
    rows = spark.read.format("delta").load(layout.silver("shop", "public.orders"))
    assert [(r["id"], r["v"]) for r in rows.collect()] == [(1, "lives" if partial else "late")]
