"""Keys with a column that is called as the member beside Connect's schema."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ingest.lakehouse.quarantine import Quarantine
from ingest.lakehouse.silver import Silver
from tests.changelogs import Topic, schema
from tests.shop import captured, merged, pipeline

pytestmark = pytest.mark.spark
FIELDS = [{"field": name, "type": "int32", "optional": True} for name in ("payload", "id")]


def key_of(names: tuple[str, ...], row: dict[str, Any], wrapped: bool) -> dict[str, Any]:
    key = {name: row[name] for name in names}
    return {"schema": {"type": "struct", "fields": FIELDS[: len(names)]}, "payload": key} if wrapped else key


@pytest.mark.parametrize("wrapped", [False, True], ids=["plain", "with schema"])
@pytest.mark.parametrize(
    "names", [pytest.param(("payload",), marks=pytest.mark.long), ("payload", "id")], ids=["one column", "two columns"]
)
def test_key_with_a_column_payload_tells_rows_apart(
    spark: SparkSession, tmp_path: Path, names: tuple[str, ...], wrapped: bool
) -> None:
    shop, topic = pipeline(tmp_path), Topic("shop.orders", key=names)
    envelope = {"schema": schema(*FIELDS, ("v", "int32"))} if wrapped else {}

    def change(op: str, lsn: int, number: int, v: int | None = None) -> None:
        row = {"payload": number, "id": 7, "v": v}
        images = {"before": {"payload": number, "id": 7}} if op == "d" else {"after": row}
        topic.change(op, lsn, **images, **envelope, key=key_of(names, row, wrapped))

    for number in range(4):
        change("c", 10 + number, number, 1)
    change("u", 20, 1, 2)
    change("d", 21, 2)
    topic.tombstone(key_of(names, {"payload": 2, "id": 7}, wrapped))
    topic.tombstone(key_of(names, {"payload": 3, "id": 7}, wrapped))
    merged(spark, shop, captured(spark, shop, tmp_path, topic.records, batch=3))
    assert Quarantine(spark, shop.layout.quarantine, shop.name).rows().count() == 0
    rows = Silver(spark, shop.layout.silver(shop.name, "public.orders")).rows().select("payload", "id", "v").collect()
    assert {tuple(row) for row in rows} == {(0, 7, 1), (1, 7, 2)}
