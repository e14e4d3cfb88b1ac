"""A shop whose changelog a sink connector has archived."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ingest.archive import ObjectStore
from ingest.config import Pipeline, load
from tests.archive.connector_objects import Objects
from tests.changelogs import Record, Topic

HOUR = 3_600_000
TABLES = {"shop.orders": "public.orders", "shop.items": "public.items"}
DECLARED_KEYS: dict[str, Any] = {
    "tables": {table: {"primary_key": ["id"]} for table in TABLES.values()},
    "source": {"topic_tables": TABLES},
}
"""Settings that declare the keys of tables, for an archive without keys."""


def events(tombstones: bool = True) -> list[Record]:
    """Returns orders in two partitions and items, over three hours; some orders are deleted."""
    records: list[Record] = []
    topics = [Topic("shop.orders", ("public", "orders"), partition=p, records=records) for p in (0, 1)]
    items = Topic("shop.items", ("public", "items"), records=records)
    for n in range(9):
        orders, at = topics[n % 2], n * HOUR // 3
        orders.change("c", 100 * n, {"id": n, "v": "ä" * n}, timestamp=at + 1)
        items.change("c", 100 * n + 1, {"id": n, "v": None, "w": 'a "quoted" \\ one'}, timestamp=at + 250)
        if n > 2:
            before = {"id": n - 2, "v": "ä" * (n - 2)}
            orders.change("u", 100 * n + 2, before | {"v": f"in {n}"}, before, timestamp=at + 3)
            if n % 3 == 0:
                orders.change("d", 100 * n + 3, None, before | {"v": f"in {n}"}, timestamp=at + 4)
                if tombstones:
                    orders.record({"id": n - 2}, None, timestamp=at + 4)
    return records


def stored(store: ObjectStore, objects: Objects) -> None:
    for name, body in objects.items():
        store._client.put_object(Bucket=store.bucket, Key=f"topics/{name}", Body=body)


def pipeline_file(folder: Path, store: ObjectStore, layout: str, **more: Any) -> Path:
    written = {
        "name": "shop",
        "source": {"kafka": {"bootstrap.servers": "127.0.0.1:9"}, "topic_pattern": r"shop\..*"}
        | more.get("source", {}),
        "lakehouse": str(folder / "lakehouse"),
        "archive": {"uri": store.uri, "s3": dict(store.client_options), "layout": layout} | more.get("archive", {}),
    }
    folder.mkdir(exist_ok=True)
    file = folder / "shop.yaml"
    file.write_text(json.dumps({**more, **written}), encoding="utf-8")
    return file


def pipeline(folder: Path, store: ObjectStore, layout: str, **more: Any) -> Pipeline:
    return load(str(pipeline_file(folder, store, layout, **more)), {})
