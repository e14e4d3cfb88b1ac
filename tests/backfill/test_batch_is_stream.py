"""A continuous run, an available-now run and backfills in any windows with crashes give the same tables, and `prove`
confirms each."""

from __future__ import annotations

import threading
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ingest.backfill.backfill import Backfill, BackfillRequest
from ingest.backfill.proving import prove
from ingest.changelog.point import Point
from ingest.config import Pipeline
from ingest.delta.delta_table import Table
from ingest.lakehouse.accounts import Accounts
from ingest.pipeline.composition import Progress, Run
from ingest.quality.digest import Digest
from ingest.sources.files import FileSource, lines
from ingest.tuning import DEFAULT_TUNING
from tests.changelogs import write
from tests.shop import captured, digests, events, merged, pipeline

pytestmark = [pytest.mark.spark, pytest.mark.long]
NOTES = "public.notes"


class Died(Exception):
    pass


@pytest.fixture(scope="module")
def available_now(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Digest]:
    folder = tmp_path_factory.mktemp("whole")
    shop = pipeline(folder)
    Run(spark, shop, source=source(folder)).available_now(threading.Event(), lambda _: None)
    found = digests(spark, shop)
    assert len(found) == 3
    proved(spark, shop)
    return found


def source(folder: Path) -> FileSource:
    return FileSource(list(lines([write(folder / "said", events(), None) / "events.jsonl"])))


def proved(spark: SparkSession, shop: Pipeline) -> None:
    proofs = prove(spark, shop, shop.layout.scratch("proof"))
    assert proofs
    assert all(p.equal for p in proofs)


def test_batches_equal_a_stream(
    spark: SparkSession, tmp_path: Path, available_now: dict[str, Digest], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bronze is compacted during the stream."""
    shop = pipeline(tmp_path, batch={"max_events": 9, "poll_seconds": 0})
    shop = shop.with_tuning(replace(DEFAULT_TUNING, append_only_files_per_size=4))
    stop, read = threading.Event(), list[int]()
    folds, exchange = list[int](), Table.rewrite

    def exchanged(table: Table, *given: Any) -> None:
        exchange(table, *given)
        if table.path == shop.layout.bronze(shop.name):
            folds.append(len(read))

    monkeypatch.setattr(Table, "rewrite", exchanged)

    def report(progress: Progress) -> None:
        read.append(sum(a.read for a in progress.accounts))
        if sum(read) == len(events()):
            stop.set()

    Run(spark, shop, source=source(tmp_path)).continuous(stop, report)
    assert len(read) > 10, read
    assert any(after < len(read) for after in folds)
    assert digests(spark, shop) == available_now
    proved(spark, shop)


def test_run_that_is_far_behind_merges_more_at_once(
    spark: SparkSession, tmp_path: Path, available_now: dict[str, Digest]
) -> None:
    """Small capture batches are merged in larger slices while more are waiting, and all at once at the end."""
    shop, steps = pipeline(tmp_path, batch={"max_events": 7, "merge_events": 20}), list[Progress]()
    Run(spark, shop, source=source(tmp_path)).available_now(threading.Event(), steps.append)
    read = [sum(a.read for a in progress.accounts) for progress in steps]
    assert sum(read) == len(events())
    merges = [n for n, count in enumerate(read) if count]
    assert all(read[n] == 21 for n in merges[:-1])
    assert merges[:-1] == list(range(2, 3 * len(merges[:-1]), 3)), "two batches are captured first"
    assert steps[-1].behind == 0
    assert read[-1], "it does not wait for more events at the end"
    assert steps[2].seconds > steps[1].seconds, "batches captured earlier are included"
    assert digests(spark, shop) == available_now
    proved(spark, shop)


@pytest.mark.parametrize(
    ("windows", "dies"),
    [(1, False), (4, False), (3, True)],
)
def test_backfill_equals_a_stream(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    available_now: dict[str, Digest],
    windows: int,
    dies: bool,
) -> None:
    """Fills new tables in windows of random size and order; windows that die are repeated."""
    random = Random(windows)
    nothing = pipeline(tmp_path, source={"include_tables": "none"})
    merged(spark, nothing, captured(spark, nothing, tmp_path, events()))
    shop = pipeline(tmp_path)
    cuts = [None, *sorted(random.sample(range(1, 10), windows - 1)), None]
    points = [None if hour is None else Point.parse(f"2026-01-01T{hour:02}:00:00Z") for hour in cuts]
    pieces = list(pairwise(points))
    random.shuffle(pieces)
    for begin, end in pieces:
        request = BackfillRequest("bronze", begin, end)
        if dies:
            with monkeypatch.context() as patched, pytest.raises(Died):
                patched.setattr(Accounts, "add", lambda *_: (_ for _ in ()).throw(Died()))
                Backfill(spark, shop, request).step()
        backfill = Backfill(spark, shop, request)
        while not backfill.done:
            backfill.step()
    assert digests(spark, shop) == {t: d for t, d in available_now.items() if t != NOTES}
    assert all(p.equal for p in prove(spark, shop, shop.layout.scratch("proof")) if p.table != NOTES)
