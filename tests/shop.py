"""A shop with a changelog to capture, merge, backfill and prove."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from ingest.backfill.digests import table_digests
from ingest.config import Pipeline, load
from ingest.lakehouse.bronze import Bronze
from ingest.loop.capture import Capture
from ingest.loop.merge import Merge
from ingest.pipeline.composition import bronze_of, rules_of
from ingest.quality.digest import Digest
from ingest.sources.files import FileSource, lines
from tests.changelogs import Record, Topic, write

HOUR = 3_600_000
DAY_BEGINS = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""


def events() -> list[Record]:
    """Returns ten hours of orders, items and notes. Some orders are deleted, with null tombstones; notes are
    keyless."""
    records: list[Record] = []
    orders = Topic("shop.orders", ("public", "orders"), records=records)
    items = Topic("shop.items", ("public", "items"), records=records)
    notes = Topic("shop.notes", ("public", "notes"), key=(), records=records)
    for hour in range(10):
        at = DAY_BEGINS + hour * HOUR
        lsn = 1000 * (hour + 1)
        for n in range(3):
            orders.change("c", lsn + n, {"id": 10 * hour + n, "v": f"hour {hour}"}, timestamp=at + n)
            items.change("c", lsn + 10 + n, {"id": 10 * hour + n, "v": "ä" * n}, timestamp=at + 10 + n)
        notes.change("c", lsn + 20, {"said": f"in hour {hour}"}, timestamp=at + 20)
        if hour:
            orders.change("u", lsn + 30, {"id": 10 * (hour - 1), "v": f"changed in {hour}"}, timestamp=at + 30)
            orders.change("d", lsn + 40, before={"id": 10 * (hour - 1) + 1}, timestamp=at + 40)
            orders.record({"id": 10 * (hour - 1) + 1}, None, timestamp=at + 41)
    for record in records:
        if record["value"] is not None:
            record["value"]["source"]["ts_ms"] = record["timestamp"]
    return records


def pipeline(folder: Path, **more: Any) -> Pipeline:
    written = {
        "name": "shop",
        "source": {"kafka": {"bootstrap.servers": "127.0.0.1:9"}, "topics": ["shop.orders"]} | more.pop("source", {}),
        "lakehouse": str(folder / "lakehouse"),
        "batch": {"max_events": 36},
    }
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "shop.yaml"
    file.write_text(json.dumps(written | more), encoding="utf-8")
    return load(str(file), {})


def captured(spark: SparkSession, shop: Pipeline, folder: Path, records: list[Record], batch: int = 12) -> Bronze:
    folder = write(folder / f"events {len(records)}", records, None)
    bronze = bronze_of(spark, shop)
    source = FileSource(list(lines([folder / "events.jsonl"])))
    capture = Capture(spark, source, bronze, rules_of(shop).naming, batch)
    while capture.step():
        pass
    return bronze


def merged(spark: SparkSession, shop: Pipeline, bronze: Bronze) -> None:
    merge = Merge(spark, shop.name, shop.layout, rules_of(shop), bronze, shop.batch.max_events)
    while merge.step():
        pass


def digests(spark: SparkSession, shop: Pipeline) -> dict[str, Digest]:
    return table_digests(spark, shop.layout, shop.name)


def first_half(spark: SparkSession, folder: Path) -> tuple[Pipeline, dict[str, Digest]]:
    """Returns a shop in `folder` that has merged its first 50 events, and the digests of its tables."""
    shop = pipeline(folder)
    merged(spark, shop, captured(spark, shop, folder, events()[:50]))
    return shop, digests(spark, shop)
