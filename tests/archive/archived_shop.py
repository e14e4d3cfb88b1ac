"""A shop whose changelog is archived, and helpers that change or damage the archive."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyspark.sql import SparkSession

from ingest.archive import Manifest, ObjectStore
from ingest.backfill.digests import table_digests
from ingest.batches.rules import Rules
from ingest.lakehouse.bronze import Bronze
from ingest.loop.capture import Capture
from ingest.loop.import_files import ArchiveImport
from ingest.names import Lakehouse
from ingest.pipeline.archiving import Archiving
from ingest.quality.digest import Digest
from ingest.sources.contract import ChangelogSource
from ingest.sources.files import FileSource, lines
from tests.changelogs import Record, Topic, write

SHOP = "Shop 1"
_ONCE = TemporaryDirectory(prefix="captured-")


def events() -> list[Record]:
    """Returns events of two tables; one topic has two partitions, with gaps in the offsets."""
    records: list[Record] = []
    orders = Topic("shop.orders", ("public", "orders"), records=records)
    for i in range(12):
        orders.change("c", 10 + i, {"id": i, "v": "ä" * i}, timestamp=1000 + i)
    orders.change("d", 40, before={"id": 3}, timestamp=1040)
    orders.change("u", 50, {"id": 4, "v": "new"}, timestamp=1050)
    items = Topic("shop.items", ("public", "items"), records=records)
    for i in range(6):
        items.change("c", 100 + i, {"id": i, "v": None}, timestamp=1100 + i)
    records.append({"topic": "shop.items", "partition": 1, "offset": 7, "key_bytes": "no json", "value": None})
    records.append(
        {
            "topic": "shop.items",
            "partition": 1,
            "offset": 70,
            "timestamp": 5,
            "headers": [{"key": "h", "value": "x"}, {"key": "n", "value": None}],
            "key": None,
            "value_bytes": "no json either",
        }
    )
    return records


def captured(spark: SparkSession, source: ChangelogSource, path: Path, batch: int) -> Bronze:
    bronze = Bronze(spark, Lakehouse(str(path)).bronze(SHOP))
    capture = Capture(spark, source, bronze, Rules().naming, batch)
    while capture.step():
        pass
    return bronze


def import_archive(spark: SparkSession, store: ObjectStore, path: Path, limit: int) -> Bronze:
    """Returns a bronze with the archive's objects imported unchanged, up to the first one that would have to be parsed
    again."""
    bronze = Bronze(spark, Lakehouse(str(path)).bronze(SHOP))
    archive_import = ArchiveImport(spark, store, SHOP, bronze, Rules().naming.digest, counted=True)
    state = bronze.captured()
    while (step := archive_import.step(state, limit)) is not None:
        state = step.state
    return bronze


def from_file(spark: SparkSession, tmp_path: Path, batch: int = 8) -> Bronze:
    """Returns the captured bronze; it is captured once per batch size and copied for every test."""
    folder = write(tmp_path / "events", events(), None)
    here, once = tmp_path / "lakehouse", Path(_ONCE.name) / str(batch)
    if once.exists():
        shutil.copytree(once, here)
        return Bronze(spark, Lakehouse(str(here)).bronze(SHOP))
    bronze = captured(spark, FileSource(list(lines([folder / "events.jsonl"]))), here, batch)
    shutil.copytree(here, once)
    return bronze


def archived(spark: SparkSession, bronze: Bronze, store: ObjectStore, most: int = 10) -> list[Manifest]:
    archiving = Archiving(spark, bronze, store, SHOP, most)
    found = []
    while (manifest := archiving.step()) is not None:
        found.append(manifest)
    return found


def pipeline_file(tmp_path: Path, store: ObjectStore, **more: Any) -> Path:
    written = {
        "name": SHOP,
        "source": {"kafka": {"bootstrap.servers": "127.0.0.1:9"}, "topics": ["shop.orders"]},
        "lakehouse": str(tmp_path / "lakehouse"),
        "archive": {"uri": store.uri, "s3": dict(store.client_options)},
    }
    tmp_path.mkdir(exist_ok=True)
    file = tmp_path / "shop.yaml"
    file.write_text(json.dumps(written | more), encoding="utf-8")
    return file


def names(store: ObjectStore) -> list[str]:
    return list(store.keys(""))


def silver(spark: SparkSession, folder: Path) -> dict[str, Digest]:
    return table_digests(spark, Lakehouse(str(folder / "lakehouse")), SHOP)


def overwrite_object(store: ObjectStore, key: str, body: bytes | None) -> None:
    place: Any = {"Bucket": store.bucket, "Key": f"some/prefix/{key}"}
    if body is None:
        store._client.delete_object(**place)
    else:
        store._client.put_object(**place, Body=body)
