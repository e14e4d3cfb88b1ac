"""A rebuilt table replaces the live one in one commit, next to a running stream and after a crash at any step."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from ingest.backfill.rebuilding import Rebuild
from ingest.cli import app
from ingest.cli.pipeline import backfill as command
from ingest.lakehouse.backfills import Backfills
from ingest.lakehouse.silver import Silver
from tests.shop import captured, digests, events, first_half, merged, pipeline

pytestmark = pytest.mark.spark
ITEMS, ORDERS, NOTES = "public.items", "public.orders", "public.notes"


class Died(Exception):
    pass


@pytest.mark.long
def test_rebuild_repairs_rows_and_applies_new_settings(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, right = first_half(spark, tmp_path)
    silver = Silver(spark, shop.layout.silver("shop", ORDERS))
    DeltaTable.forPath(spark, silver.path).delete("id < 20")
    wrong = digests(spark, shop)
    before = silver.version_at("shop", 1 << 40)
    changed = pipeline(tmp_path, tables={ITEMS: {"columns": {"id": "decimal(20,2)"}}})
    monkeypatch.setattr(command, "running", lambda *_: nullcontext(spark))
    result = CliRunner().invoke(app, ["backfill", str(tmp_path / "shop.yaml"), "--rebuild", "--json"])
    assert json.loads(result.output) == {"rebuilt": [ITEMS, NOTES, ORDERS]}, result.exception
    now = digests(spark, changed)
    assert {t: now[t] for t in (ORDERS, NOTES)} == {t: right[t] for t in (ORDERS, NOTES)}
    assert wrong[ORDERS].rows < right[ORDERS].rows == now[ORDERS].rows
    items = spark.read.format("delta").load(shop.layout.silver("shop", ITEMS))
    assert items.schema["id"].dataType.simpleString() == "decimal(20,2)"
    assert items.count() == right[ITEMS].rows
    assert silver.rows(str(before)).count() == wrong[ORDERS].rows, "its history is kept"
    assert not list((tmp_path / "lakehouse" / "beside").glob("*"))
    merged(spark, changed, captured(spark, changed, tmp_path, events()))
    whole = pipeline(tmp_path / "other")
    merged(spark, whole, captured(spark, whole, tmp_path / "other", events()))
    assert digests(spark, changed)[ORDERS] == digests(spark, whole)[ORDERS], "the stream continues"


@pytest.mark.long
def test_rebuild_continues_after_a_crash_and_includes_concurrent_merges(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = pipeline(tmp_path)
    merged(spark, shop, captured(spark, shop, tmp_path, events()[:50]))
    more = captured(spark, shop, tmp_path, events())
    with monkeypatch.context() as patched, pytest.raises(Died):
        patched.setattr(Rebuild, "_swap", lambda *_: (_ for _ in ()).throw(Died()))
        Rebuild(spark, shop).run()
    DeltaTable.forPath(spark, shop.layout.silver("shop", ORDERS)).delete("id < 20")
    merged(spark, shop, more)
    again = Rebuild(spark, shop)
    assert again.backfill_run.number == 1
    again.run()
    whole = pipeline(tmp_path / "other")
    merged(spark, whole, captured(spark, whole, tmp_path / "other", events()))
    assert digests(spark, shop) == digests(spark, whole)
    (done,) = Backfills(spark, shop.layout.backfills, "shop").all()
    assert done.ended_at is not None
    assert done.request["source"] == "rebuild"
