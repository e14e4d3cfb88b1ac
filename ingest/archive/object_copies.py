"""Copies archived objects byte for byte into a folder of Parquet files; their events are not parsed again."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from ingest.archive.manifest import ArchivedObject
from ingest.archive.manifest_archive import REMEDY, fetch_object, parse_object
from ingest.archive.reading import objects_frame
from ingest.archive.store import ObjectStore
from ingest.changelog.envelope import BATCH
from ingest.errors import ChangelogUnusable
from ingest.spark.arrow_tasks import map_in_arrow

_COLUMNS = ("topic", "partition", "offset", BATCH)
_COPY = T.StructType(
    [
        T.StructField("key", T.StringType(), False),
        T.StructField("name", T.StringType(), False),
        T.StructField("first_batch", T.LongType(), False),
        T.StructField("last_batch", T.LongType(), False),
    ]
)


@dataclass(frozen=True)
class Copy:
    """A copied file. `name`: in the folder. `first_batch`, `last_batch`: the capture batches of its records."""

    name: str
    source: ArchivedObject
    first_batch: int
    last_batch: int


def copy_objects(spark: SparkSession, store: ObjectStore, objects: Sequence[ArchivedObject], folder: str) -> list[Copy]:
    """Copies objects of `CAPTURED` rows into `folder`, which every executor must reach, and returns one entry per
    object, in order. Names contain the hash, so a repeated copy writes the same files.

    Raises ChangelogUnusable where an object differs from its manifest."""

    def copy(listed: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        Path(folder).mkdir(parents=True, exist_ok=True)
        for batch in listed:
            for row in batch.to_pylist():
                yield pa.RecordBatch.from_pylist([_copy_object(store, ArchivedObject(**row), Path(folder))])

    rows = map_in_arrow(objects_frame(spark, ArchivedObject, objects), copy, _COPY).collect()  # a row per object
    copies = {row["key"]: row for row in rows}
    return [
        Copy(r["name"], entry, r["first_batch"], r["last_batch"]) for entry in objects for r in (copies[entry.key],)
    ]


def _copy_object(store: ObjectStore, entry: ArchivedObject, folder: Path) -> dict[str, str | int]:
    body, damage = fetch_object(store, entry)
    table, damage = (None, damage) if body is None else parse_object(body, entry, _COLUMNS)
    if body is None or table is None:
        raise ChangelogUnusable(f"{entry.key} in the archive {damage}; it held {entry.description}", REMEDY)
    name = f"{entry.first_offset:020d}-{entry.sha256[:32]}.parquet"
    part = folder / f".{name}.{os.getpid()}"
    part.write_bytes(body)
    part.replace(folder / name)
    batches = pc.min_max(table.column(BATCH)).as_py()
    return {"key": entry.key, "name": name, "first_batch": batches["min"], "last_batch": batches["max"]}
