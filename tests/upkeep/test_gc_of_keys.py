"""`ingest gc` in a table whose key has changed: rows that a newer row hides still appear once that one is deleted."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ingest.lakehouse.silver import Silver
from ingest.lakehouse.tombstones import Tombstones
from ingest.upkeep.tombstone_gc import age_horizons, collect_garbage
from tests.changelogs import Topic, schema
from tests.shop import DAY_BEGINS, HOUR, captured, merged, pipeline

pytestmark = pytest.mark.spark
TABLE = "public.orders"
TYPES = {"id": "int32", "region": "string"}
SCHEMA = schema(*TYPES.items())


def key(row: dict[str, Any], *names: str) -> dict[str, Any]:
    fields = [{"type": TYPES[name], "optional": False, "field": name} for name in names]
    return {"schema": {"type": "struct", "fields": fields}, "payload": {name: row[name] for name in names}}


@pytest.mark.long
def test_gc_keeps_what_decides_about_rows_of_an_earlier_key(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    orders, shop = Topic("shop.orders"), pipeline(tmp_path)
    for lsn, id_, region in ((10, 2, "eu"), (50, 2, "ap"), (55, 9, "us")):
        row = {"id": id_, "region": region}
        orders.change("c", lsn, row, schema=SCHEMA, key=key(row, "id", "region"), timestamp=DAY_BEGINS)
    orders.change("c", 100, row | {"id": 3}, schema=SCHEMA, key=key({"id": 3}, "id"), timestamp=DAY_BEGINS + HOUR)
    bronze = captured(spark, shop, tmp_path, orders.records)
    merged(spark, shop, bronze)
    silver = Silver(spark, shop.layout.silver("shop", TABLE))
    assert sorted(silver.rows().select("id", "region").collect()) == [(2, "ap"), (3, "us"), (9, "us")]
    horizons = age_horizons(bronze, datetime.fromtimestamp(DAY_BEGINS / 1000 + 60, UTC))
    (kept,) = collect_garbage(spark, "shop", shop.layout, bronze, horizons, dry_run=False)
    assert (kept.forgotten, kept.tombstones) == (0, 3)
    assert "1 rows of an earlier key wait" in caplog.text
    deleted = {"id": 2, "region": "ap"}
    orders.change("d", 60, before=deleted, schema=SCHEMA, key=key(deleted, "id", "region"), timestamp=DAY_BEGINS)
    bronze = captured(spark, shop, tmp_path, orders.records)
    merged(spark, shop, bronze)
    assert sorted(silver.rows().select("id", "region").collect()) == [(2, "eu"), (3, "us"), (9, "us")]
    horizons = age_horizons(bronze, datetime.fromtimestamp(DAY_BEGINS / 1000 + 60, UTC))
    (collected,) = collect_garbage(spark, "shop", shop.layout, bronze, horizons, dry_run=False)
    assert collected.forgotten > 0
    assert (
        Tombstones(spark, shop.layout.tombstones("shop", TABLE)).count() == collected.tombstones - collected.forgotten
    )
