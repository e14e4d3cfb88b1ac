"""A backfill gives the same tables as the stream, with any windows in any order, and after a crash at any step."""

from __future__ import annotations

import json
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from ingest.backfill.backfill import Backfill, BackfillRequest
from ingest.changelog.point import Point
from ingest.cli import app
from ingest.cli.pipeline import backfill as command
from ingest.config import Pipeline
from ingest.errors import ConfigError
from ingest.lakehouse.accounts import Accounts
from ingest.lakehouse.backfills import Backfills
from ingest.lakehouse.bronze import Bronze
from ingest.quality.digest import Digest
from tests.shop import captured, digests, events, merged, pipeline

pytestmark = pytest.mark.spark
ITEMS, ORDERS, NOTES = "public.items", "public.orders", "public.notes"


class Died(Exception):
    pass


@pytest.fixture(scope="module")
def streamed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Digest]:
    """Returns the digests of all tables after a stream."""
    folder = tmp_path_factory.mktemp("whole")
    shop = pipeline(folder)
    merged(spark, shop, captured(spark, shop, folder, events()))
    found = digests(spark, shop)
    assert found.keys() == {ITEMS, ORDERS, NOTES}
    return found


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> tuple[Pipeline, Bronze]:
    """Returns a shop that has merged only orders so far."""
    before = pipeline(tmp_path, source={"include_tables": "orders"})
    bronze = captured(spark, before, tmp_path, events())
    merged(spark, before, bronze)
    assert digests(spark, before).keys() == {ORDERS}
    return pipeline(tmp_path), bronze


def at(hour: int) -> Point:
    return Point.parse(f"2026-01-01T{hour:02}:00:00Z")


def done(spark: SparkSession, shop: Pipeline, request: BackfillRequest) -> Backfill:
    backfill = Backfill(spark, shop, request)
    while not backfill.done:
        backfill.step()
    return backfill


@pytest.mark.long
def test_windows_in_any_order_fill_a_new_table(
    spark: SparkSession, shop: tuple[Pipeline, Bronze], streamed: dict[str, Digest]
) -> None:
    random = Random(3)
    cuts = [0, *sorted(random.sample(range(1, 10), 2)), 24]
    windows = list(pairwise(cuts))
    random.shuffle(windows)
    for begin, end in windows:
        ends = None if end == 24 else at(end)
        done(spark, shop[0], BackfillRequest("bronze", at(begin), ends))
    found = digests(spark, shop[0])
    assert found == {t: d for t, d in streamed.items() if t != NOTES}, (
        "rows without a key can't be told from doubled ones"
    )
    backfills = Backfills(spark, shop[0].layout.backfills, "shop").all()
    assert [b.number for b in backfills] == [1, 2, 3]
    assert all(b.ended_at for b in backfills)
    read = sum(
        row["read"] for b in backfills for row in Accounts(spark, shop[0].layout.accounts, b.writer).rows().collect()
    )
    assert read == len(events()), "each event was in one window"


@pytest.mark.long
def test_backfill_that_died_continues(
    spark: SparkSession, shop: tuple[Pipeline, Bronze], streamed: dict[str, Digest], monkeypatch: pytest.MonkeyPatch
) -> None:
    request = BackfillRequest("bronze", tables=(ITEMS,))
    first = Backfill(spark, shop[0], request)
    first.step()
    with monkeypatch.context() as patched, pytest.raises(Died):
        patched.setattr(Accounts, "add", lambda *_: (_ for _ in ()).throw(Died()))
        first.step()
    again = Backfill(spark, shop[0], request)
    assert again.run == first.run
    assert again._merge is not None
    assert again._merge.merged > 0
    while not again.done:
        again.step()
    assert digests(spark, shop[0])[ITEMS] == streamed[ITEMS]
    assert Backfill(spark, shop[0], request).run.number == 2, "a backfill that has ended is not continued"


def test_backfill_changes_no_merged_row(
    spark: SparkSession, shop: tuple[Pipeline, Bronze], streamed: dict[str, Digest]
) -> None:
    backfill = done(spark, shop[0], BackfillRequest("bronze", Point.parse("0/BB8"), Point.parse("0/1F40"), (ORDERS,)))
    assert digests(spark, shop[0]) == {ORDERS: streamed[ORDERS]}
    sums = Accounts(spark, shop[0].layout.accounts, backfill.run.writer).rows().where(f"table = '{ORDERS}'")
    row = sums.selectExpr("sum(read)", "sum(applied)").first()
    lsns = [r["value"]["source"]["lsn"] for r in events() if r["topic"] == "shop.orders" and r["value"]]
    inside = sum(3000 <= lsn < 8000 for lsn in lsns)
    deletes = sum(3000 <= lsn < 8000 and lsn % 1000 == 40 for lsn in lsns)
    assert row is not None
    assert tuple(row) == (inside + deletes, 0), "a null tombstone has the position of its delete"


def test_backfill_from_kafka_refuses_positions() -> None:
    with pytest.raises(ConfigError, match="takes only times"):
        BackfillRequest("kafka", Point.parse("0/10"))


@pytest.mark.long
def test_backfill_command_counts_and_merges(
    spark: SparkSession,
    tmp_path: Path,
    shop: tuple[Pipeline, Bronze],
    streamed: dict[str, Digest],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(command, "running", lambda *_: nullcontext(spark))

    def run_command(*options: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, ["backfill", str(tmp_path / "shop.yaml"), *options])
        assert result.exit_code == code, result.output
        return result.output

    window = ("--from", "2026-01-01T00:00:00", "--to", "2026-01-01T02:00:00+00:00", "--table", ITEMS)
    assert json.loads(run_command(*window, "--dry-run", "--json"))["would_read"] == {ITEMS: 6}
    assert Backfills(spark, shop[0].layout.backfills, "shop").all() == []
    summary = json.loads(run_command(*window, "--json"))
    assert (summary["complete"], summary["tables"][ITEMS]["applied"]) == (True, 6)
    assert json.loads(run_command(*window, "--json"))["tables"][ITEMS]["applied"] == 0
    assert "complete" in run_command("--table", ITEMS)
    assert digests(spark, shop[0])[ITEMS] == streamed[ITEMS]
    for more in ((), ("--dry-run",), ("--rebuild",)):
        result = CliRunner().invoke(app, ["backfill", str(tmp_path / "shop.yaml"), "--table", f"{ITEMS}s", *more])
        assert isinstance(result.exception, ConfigError)
        assert result.exception.remedy == f"did you mean {ITEMS}?"


def test_point_is_a_time_or_a_position() -> None:
    assert Point.parse("2026-01-01").time == Point.parse("2026-01-01T00:00:00Z").time
    assert Point.parse("0/16B3748") == Point.parse(str(0x16B3748))
    binlog = Point.parse("mysql-bin.000003:4567")
    assert (binlog.major, binlog.minor) == (3, 4567)
    for text in ("2026-01-01T12:00:00+02:00", "0/16B3748", "binlog.000003:4567"):
        assert Point.parse(Point.parse(text).text) == Point.parse(text)
    with pytest.raises(ValueError, match="neither a time"):
        Point.parse("yesterday")
