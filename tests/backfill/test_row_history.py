"""The history of a row: the events of its key with time and changes, and the SCD 2 table."""

from __future__ import annotations

import json
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from ingest.backfill.proving import prove
from ingest.backfill.recomputing import committed_by, recompute_tables
from ingest.backfill.row_history import APPEARS, CHANGES, row_events
from ingest.changelog.point import Point
from ingest.cli import app
from ingest.cli.lakehouse import history as command
from ingest.cli.pipeline import backfill as backfill_command
from ingest.config import Pipeline
from ingest.jvm.folders import deleted_afterwards
from ingest.lakehouse.silver import Silver
from ingest.loop.merge import Merge
from ingest.pipeline.composition import rules_of
from ingest.reconcile.scd2 import row_history_of
from ingest.testing.table_deliveries import interleaved
from ingest.testing.table_records import as_debezium
from tests.changelogs import Topic
from tests.loop.test_told_tables import INT, TEXT, Source
from tests.shop import DAY_BEGINS, HOUR, captured, events, merged, pipeline

pytestmark = pytest.mark.spark
ITEMS, ORDERS, NOTES = "public.items", "public.orders", "public.notes"
HISTORY = {ORDERS: {"history": True}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("life")


@pytest.fixture(scope="module")
def shop(spark: SparkSession, folder: Path) -> Pipeline:
    """Returns a shop without `history`."""
    made = pipeline(folder)
    merged(spark, made, captured(spark, made, folder, events()))
    return made


@pytest.fixture
def run_command(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(command, "running", lambda *_: nullcontext(spark))

    def run(folder: Path, *words: str) -> str:
        result = CliRunner().invoke(app, ["history", *words, "-p", str(folder / "shop.yaml")])
        assert result.exit_code == 0, str(result.exception)
        return result.output

    return run


def versions(spark: SparkSession, shop: Pipeline) -> set[tuple[Any, ...]]:
    rows = row_history_of(spark, shop.layout, shop.name, ORDERS).versions.rows()
    listed = rows.selectExpr("id", "v", "unix_millis(_valid_from)", "unix_millis(_valid_to)").collect()
    assert len(listed) == len(set(listed))
    return {tuple(row) for row in listed}


def proved(spark: SparkSession, shop: Pipeline) -> dict[str, bool | None]:
    """Returns table → whether its history equals its events."""
    scratch = shop.layout.scratch("proof")
    with deleted_afterwards(spark, scratch.root):
        proofs = prove(spark, shop, scratch)
    assert all(p.live == p.folded for p in proofs)
    return {p.table: p.history for p in proofs}


EXPECTED = {
    *((10 * hour, f"hour {hour}", hour * HOUR, (hour + 1) * HOUR + 30) for hour in range(9)),
    *((10 * hour, f"changed in {hour + 1}", (hour + 1) * HOUR + 30, None) for hour in range(9)),
    *((10 * hour + 1, f"hour {hour}", hour * HOUR + 1, (hour + 1) * HOUR + 40) for hour in range(9)),
    *((10 * hour + 2, f"hour {hour}", hour * HOUR + 2, None) for hour in range(10)),
    *((90 + n, "hour 9", 9 * HOUR + n, None) for n in range(2)),
}
"""`id`, `v`, and begin and end of the version in milliseconds after the day's begin."""


@pytest.mark.long
def test_backfill_adds_versions_from_before_history_was_set(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = {(i, v, DAY_BEGINS + since, until and DAY_BEGINS + until) for i, v, since, until in EXPECTED}
    kept = pipeline(tmp_path, tables=HISTORY)
    merged(spark, kept, captured(spark, kept, tmp_path, events()))
    assert versions(spark, kept) == wanted
    late = pipeline(tmp_path / "late")
    bronze = captured(spark, late, tmp_path / "late", events()[:50])
    merged(spark, late, bronze)
    late = pipeline(tmp_path / "late", tables=HISTORY)
    merged(spark, late, captured(spark, late, tmp_path / "late", events()))
    assert versions(spark, late) < wanted
    assert proved(spark, late) == {ORDERS: False, ITEMS: None, NOTES: None}
    monkeypatch.setattr(backfill_command, "running", lambda *_: nullcontext(spark))
    for option in ((), ("--rebuild",)):
        file = str(tmp_path / "late" / "shop.yaml")
        result = CliRunner().invoke(app, ["backfill", file, "--table", ORDERS, *option])
        assert result.exit_code == 0, str(result.exception)
        assert versions(spark, late) == wanted
        assert proved(spark, late)[ORDERS] is True


@pytest.mark.long
def test_history_command_works_without_a_history_table(
    spark: SparkSession, folder: Path, shop: Pipeline, tmp_path: Path, run_command: Any
) -> None:
    kept = pipeline(tmp_path, tables=HISTORY)
    merged(spark, kept, captured(spark, kept, tmp_path, events()))
    for where in (folder, tmp_path):
        listed = json.loads(run_command(where, ORDERS, "id=20", "--json"))["events"]
        assert [(s["what"], s["at"], s["changed"]) for s in listed] == [
            ("appears", "2026-01-01T02:00:00+00:00", {"id": [None, 20], "v": [None, "hour 2"]}),
            ("changes", "2026-01-01T03:00:00.030000+00:00", {"v": ["hour 2", "changed in 3"]}),
        ]
        listed = json.loads(run_command(where, ORDERS, "id=21", "--json", "--no-values"))["events"]
        assert [(s["what"], s["changed"]) for s in listed] == [("appears", ["id", "v"]), ("vanishes", [])]
        assert "no event names this key" in run_command(where, ORDERS, "id=77")
    shown = " ".join(run_command(folder, ORDERS, "id=20").replace("│", " ").split())
    assert "v: hour 2 →" in shown
    assert "changed in 3" in shown
    assert not list((Path(shop.lakehouse) / "beside").glob("*"))


def test_invalid_arguments_of_history_are_refused(folder: Path, shop: Pipeline, run_command: Any) -> None:
    for words, problem in (
        ((ORDERS, "20"), "given as column=value"),
        ((ORDERS, "number=20"), "the key of public.orders is id"),
        (("public.order", "id=20"), "public.order is no table of pipeline shop → did you mean public.orders"),
    ):
        with pytest.raises(AssertionError, match=problem):
            run_command(folder, *words)


@pytest.mark.long
def test_history_needs_all_columns_of_the_key(spark: SparkSession, tmp_path: Path, run_command: Any) -> None:
    lines = Topic("shop.lines", ("public", "lines"), key=("order_id", "line"))
    for lsn, (line, v) in enumerate([(1, "a"), (2, "b"), (1, "c")], start=10):
        lines.change("u", lsn, {"order_id": 7, "line": line, "v": v})
    shop = pipeline(tmp_path)
    merged(spark, shop, captured(spark, shop, tmp_path, lines.records))
    listed = json.loads(run_command(tmp_path, "public.lines", "line=1", "order_id=7", "--json"))["events"]
    assert [step["changed"] for step in listed] == [
        {"order_id": [None, 7], "line": [None, 1], "v": [None, "a"]},
        {"v": ["a", "c"]},
    ]
    file = tmp_path / "key"
    file.write_text("order_id=7\nline=1\n", encoding="utf-8")
    assert json.loads(run_command(tmp_path, "public.lines", "--key-file", str(file), "--json"))["events"] == listed
    with pytest.raises(
        AssertionError, match=r"the key of public.lines is order_id, line → .*public.lines order_id=… line=…"
    ):
        run_command(tmp_path, "public.lines", "order_id=7")


def recreated() -> Source:
    """Returns a table that is dropped and created anew with other columns, of which the key is then renamed."""
    source = Source(ORDERS, ("no",), no=INT, a=INT, gone=INT)
    source.write("c", no=1, a=1, gone=1)
    source.write("c", no=2, a=2, gone=2)
    source.recreate(("no",), no=INT, a=TEXT)
    source.write("c", no=2, a="new")
    source.rename("no", "id")
    source.write("u", id=2, a="newer")
    return source


@pytest.mark.long
@pytest.mark.parametrize(
    ("kept", "batch"),
    [(True, 4), (True, 1), (True, 99), (False, 4)],
)
def test_row_history_begins_with_the_relation_that_has_the_name(
    spark: SparkSession, tmp_path: Path, kept: bool, batch: int
) -> None:
    story = recreated().story()
    records = interleaved([as_debezium(story, story.events)], Random(0))
    shop = pipeline(tmp_path, tables=HISTORY if kept else {})
    bronze = captured(spark, shop, tmp_path, records, batch)
    merge = Merge(spark, shop.name, shop.layout, rules_of(shop), bronze, slice_events=batch)
    while merge.step():
        pass
    assert merge.set_aside == {}
    for key, steps in ((1, []), (2, [(APPEARS, (None, "new")), (CHANGES, ("new", "newer"))])):
        found = row_events(spark, shop, ORDERS, {"id": str(key)}, shop.layout.scratch(f"key-{key}"))
        assert [(one.what, one.changed["a"]) for one in found] == steps
    assert proved(spark, shop) == {ORDERS: True if kept else None}
    then = shop.layout.scratch("then")
    recompute_tables(spark, shop, then, event_filter=partial(committed_by, Point(major=35)))
    rows = Silver(spark, then.silver(shop.name, ORDERS)).rows().select("no", "a", "gone").collect()
    assert sorted(map(tuple, rows)) == [(1, 1, 1), (2, 2, 2)]


def test_events_of_a_row_may_lack_columns_of_the_table(spark: SparkSession, tmp_path: Path) -> None:
    t = Topic("shop.orders")
    t.change("c", 10, {"ID": 1, "v": "a"}, key={"ID": 1})
    t.change("c", 11, {"ID": 2, "v": "b", "w": 7}, key={"ID": 2})
    shop = pipeline(tmp_path, tables={ORDERS: {"rename": {"ID": "number"}}})
    merged(spark, shop, captured(spark, shop, tmp_path, t.records))
    (found,) = row_events(spark, shop, ORDERS, {"number": "1"}, shop.layout.scratch("one"))
    assert (found.what, found.changed["v"], found.changed["w"]) == (APPEARS, (None, "a"), (None, None))
