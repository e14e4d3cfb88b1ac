"""A table whose column was dropped and came back, and one whose key changed, computed from bronze: now, as of a
position before the drop, and by backfills of windows in any order."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ingest.backfill.backfill import Backfill, BackfillRequest
from ingest.backfill.proving import prove
from ingest.backfill.recomputing import committed_by, recompute_tables
from ingest.changelog.point import Point
from ingest.config import Pipeline
from ingest.lakehouse.silver import Silver
from ingest.loop.merge import Merge
from ingest.names import Lakehouse
from ingest.pipeline.composition import rules_of
from tests.changelogs import Record, Topic, schema
from tests.shop import captured, merged, pipeline

pytestmark = pytest.mark.spark
ORDERS, ITEMS = "public.orders", "public.items"
OLD = schema(("id", "int64"), ("v", "string"))
FILLED = schema(("id", "int64"), ("v", "string"), {"field": "t", "type": "int32", "optional": True, "default": 7})
ITEM = schema(("id", "int64"), ("sku", "string"))
BACK = schema(("id", "int64"), ("v", "string"), {"field": "t", "type": "int32", "optional": True, "default": 9})


def records() -> list[Record]:
    t = Topic("shop.orders")
    t.change("c", 10, {"id": 1, "v": "a"}, schema=OLD)
    t.change("c", 20, {"id": 2, "v": "b", "t": 5}, schema=FILLED)
    t.change("c", 30, {"id": 3, "v": "c"}, schema=OLD)
    t.change("c", 40, {"id": 4, "v": "d", "t": 4}, schema=BACK)
    t.change("c", 25, {"id": 5, "v": "late", "t": 6}, schema=FILLED)
    t.change("c", 15, {"id": 6, "v": "late"}, schema=OLD)
    return t.records


def values(spark: SparkSession, layout: Lakehouse) -> dict[int, Any]:
    return {row["id"]: row["t"] for row in Silver(spark, layout.silver("shop", ORDERS)).rows().collect()}


def rekeyed_records() -> list[Record]:
    """Returns records of a table whose key goes from `id` to `sku` at 30."""
    t = Topic("shop.items", ("public", "items"), ("id",))
    t.change("c", 10, {"id": 1, "sku": "a"}, schema=ITEM)
    t.change("c", 20, {"id": 2, "sku": "b"}, schema=ITEM)
    t.change("u", 30, {"id": 8, "sku": "a"}, schema=ITEM, key={"sku": "a"})
    t.change("d", 40, before={"id": 0, "sku": "b"}, schema=ITEM, key={"sku": "b"})
    t.change("c", 15, {"id": 3, "sku": "c"}, schema=ITEM)
    return t.records


def backfill(spark: SparkSession, shop: Pipeline, request: BackfillRequest) -> None:
    with Backfill(spark, shop, request) as running:
        while not running.done:
            running.step()
        assert not running.set_aside


@pytest.mark.long
def test_windows_in_any_order_show_the_columns_and_keys_of_their_time(spark: SparkSession, tmp_path: Path) -> None:
    """Regression: a window did not know the definitions that events of the other windows have shown."""
    without = pipeline(tmp_path, source={"include_tables": "nothing"})
    bronze = captured(spark, without, tmp_path, [*records(), *rekeyed_records()])
    merged(spark, without, bronze)
    shop = pipeline(tmp_path)
    twenty, thirty, forty = (Point(major=at) for at in (20, 30, 40))
    for begin, end in ((twenty, thirty), (forty, None), (thirty, forty), (None, twenty)):
        backfill(spark, shop, BackfillRequest("bronze", begin, end))
    assert values(spark, shop.layout) == {1: 9, 2: 9, 3: 9, 4: 4, 5: 9, 6: 9}
    items = Silver(spark, shop.layout.silver("shop", ITEMS)).rows().collect()
    assert {(row["id"], row["sku"]) for row in items} == {(8, "a"), (3, "c")}


@pytest.mark.long
def test_recomputed_tables_have_the_columns_of_their_time(spark: SparkSession, tmp_path: Path) -> None:
    shop = pipeline(tmp_path, tables={ORDERS: {"history": True}})
    bronze = captured(spark, shop, tmp_path, records(), batch=1)
    merge = Merge(spark, shop.name, shop.layout, rules_of(shop), bronze, slice_events=1)
    while merge.step():
        pass
    assert values(spark, shop.layout) == {1: 9, 2: 9, 3: 9, 4: 4, 5: 9, 6: 9}
    (proof,) = prove(spark, shop, shop.layout.scratch("proof"))
    assert (proof.equal, proof.history) == (True, True)
    then = Lakehouse(str(tmp_path / "then"))
    recompute_tables(spark, shop, then, event_filter=partial(committed_by, Point(major=25)))
    assert values(spark, then) == {1: 7, 2: 5, 5: 6, 6: 7}
