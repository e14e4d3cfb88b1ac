"""A table has the types that its pipeline's file declares: new ones at once, changed ones after a rebuild."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ingest.backfill.rebuilding import Rebuild
from ingest.config import Pipeline
from ingest.lakehouse.quarantine import Quarantine
from ingest.lakehouse.silver import Silver
from tests.changelogs import Topic, schema
from tests.shop import captured, merged, pipeline

pytestmark = pytest.mark.spark
ORDERS = "public.orders"


def declared(folder: Path, **columns: str) -> Pipeline:
    return pipeline(folder, tables={ORDERS: {"columns": columns}} if columns else {})


def typed(kind: str) -> dict[str, Any]:
    return schema(("id", "int32"), ("v", kind))


def stored(spark: SparkSession, shop: Pipeline) -> tuple[str, list[Any]]:
    """Returns the type of the column `v` and its values."""
    rows = Silver(spark, shop.layout.silver("shop", ORDERS)).rows()
    return rows.schema["v"].dataType.simpleString(), [str(row["v"]) for row in rows.orderBy("id").collect()]


@pytest.mark.long
def test_declared_type_holds_for_all_rows_after_a_rebuild(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = Topic("shop.orders")
    topic.change("c", 10, {"id": 1, "v": 0.1}, schema=typed("double"))
    topic.change("c", 11, {"id": 2, "v": 2.5}, schema=typed("double"))
    shop = declared(tmp_path)
    merged(spark, shop, captured(spark, shop, tmp_path, topic.records))
    assert stored(spark, shop) == ("double", ["0.1", "2.5"])

    topic.change("c", 12, {"id": 3, "v": 3.25}, schema=typed("double"))
    shop = declared(tmp_path, v="decimal(12,2)")
    with caplog.at_level(logging.WARNING):
        merged(spark, shop, captured(spark, shop, tmp_path, topic.records))
    assert "column 'v' is float64 in the table and declared as decimal(12,2)" in caplog.text
    assert "ingest backfill shop --rebuild --table public.orders" in caplog.text
    assert stored(spark, shop) == ("double", ["0.1", "2.5", "3.25"])

    Rebuild(spark, shop, [ORDERS]).run()
    assert stored(spark, shop) == ("decimal(12,2)", ["0.10", "2.50", "3.25"])
    topic.change("c", 20, {"id": 4, "v": "4.5"}, schema=typed("string"))
    topic.change("c", 21, {"id": 5, "v": "4.555"}, schema=typed("string"))
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        merged(spark, shop, captured(spark, shop, tmp_path, topic.records))
    assert "declared" not in caplog.text
    assert stored(spark, shop) == ("decimal(12,2)", ["0.10", "2.50", "3.25", "4.50"])
    (refused,) = Quarantine(spark, shop.layout.quarantine, "shop").rows().collect()
    assert refused["reason"] == "can't be read by their type: v (string in the event, declared as decimal(12,2))"

    for columns, found in (
        ({"v": "string"}, ("string", ["0.1", "2.5", "3.25", "4.5", "4.555"])),
        ({"v": "float64"}, ("double", ["0.1", "2.5", "3.25", "4.5", "4.555"])),
    ):
        shop = declared(tmp_path, **columns)
        Rebuild(spark, shop, [ORDERS]).run()
        assert stored(spark, shop) == found


@pytest.mark.long
def test_type_that_is_no_longer_declared_stays_until_a_rebuild(spark: SparkSession, tmp_path: Path) -> None:
    topic = Topic("shop.orders")
    topic.change("c", 10, {"id": 1, "v": 7}, schema=typed("int32"))
    shop = declared(tmp_path, v="string")
    merged(spark, shop, captured(spark, shop, tmp_path, topic.records))
    topic.change("c", 11, {"id": 2, "v": 8}, schema=typed("int32"))
    shop = declared(tmp_path)
    merged(spark, shop, captured(spark, shop, tmp_path, topic.records))
    assert stored(spark, shop) == ("string", ["7", "8"])
    Rebuild(spark, shop, [ORDERS]).run()
    assert stored(spark, shop) == ("int", ["7", "8"])
