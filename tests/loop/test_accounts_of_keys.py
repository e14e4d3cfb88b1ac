"""Null tombstones are counted in a batch whose events have another key than the table."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ingest.lakehouse.accounts import Accounts
from ingest.lakehouse.silver import Silver
from ingest.quality.accounting import audit
from tests.changelogs import Topic, schema
from tests.shop import captured, merged, pipeline

pytestmark = pytest.mark.spark
COLUMNS = schema(("id", "int32"), ("region", "string"))


def test_null_tombstone_that_repeats_its_delete_is_counted_when_the_key_has_changed(
    spark: SparkSession, tmp_path: Path
) -> None:
    """At the source: DROP CONSTRAINT orders_pkey, ADD PRIMARY KEY (id, region)."""
    shop, topic = pipeline(tmp_path), Topic("shop.orders")
    for id_ in (1, 2):
        topic.change("c", 10 + id_, {"id": id_, "region": "eu"}, schema=COLUMNS)
    merged(spark, shop, captured(spark, shop, tmp_path, topic.records))
    key = {"id": 1, "region": "eu"}
    topic.change("d", 20, before=key, key=key, schema=COLUMNS)
    topic.tombstone(key)
    topic.change("c", 30, {"id": 3, "region": "eu"}, key={"id": 3, "region": "eu"}, schema=COLUMNS)
    bronze = captured(spark, shop, tmp_path, topic.records)
    merged(spark, shop, bronze)
    rows = Silver(spark, shop.layout.silver(shop.name, "public.orders")).rows().select("id").collect()
    assert {row["id"] for row in rows} == {2, 3}
    found = audit(bronze.rows(), Accounts(spark, shop.layout.accounts, shop.name).rows())
    assert (found.problems, found.waiting) == ([], 0)
    assert found.tables["public.orders"]["superseded"] == 1
