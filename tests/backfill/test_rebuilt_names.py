"""A rebuild gives the columns of a table the names that its file says by then, with column mapping and without."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ingest.backfill.rebuilding import Rebuild
from ingest.lakehouse.silver import Silver
from tests.changelogs import Topic
from tests.shop import captured, merged, pipeline

pytestmark = [pytest.mark.spark, pytest.mark.long]
ORDERS = "public.orders"


def test_a_name_that_needs_column_mapping_is_replaced_and_comes_back(spark: SparkSession, tmp_path: Path) -> None:
    t = Topic("shop.orders")
    for at in range(10, 15):
        t.change("c", at, {"id": at, "unit price": 2 * at})
    t.change("d", 20, before={"id": 14, "unit price": 28})
    shop = pipeline(tmp_path)
    bronze = captured(spark, shop, tmp_path, t.records)
    merged(spark, shop, bronze)
    rows = {at: 2 * at for at in range(10, 14)}
    for rename, name in (({}, "unit price"), ({"unit price": "price"}, "price"), ({}, "unit price")):
        shop = pipeline(tmp_path, tables={ORDERS: {"rename": rename}})
        Rebuild(spark, shop).run()
        found = Silver(spark, shop.layout.silver(shop.name, ORDERS)).rows()
        assert [column for column in found.columns if not column.startswith("_")] == ["id", name]
        assert {row["id"]: row[name] for row in found.collect()} == rows
    merged(spark, shop, captured(spark, shop, tmp_path, [*t.records, t.change("u", 30, {"id": 10, "unit price": 7})]))
    found = Silver(spark, shop.layout.silver(shop.name, ORDERS)).rows()
    assert {row["id"]: row["unit price"] for row in found.collect()} == rows | {10: 7}
