"""The layout that `ingest archive run` writes: manifests and the objects that they name."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from ingest.archive.layout import Damage, OnChecked
from ingest.archive.manifest import ArchivedObject, Manifest, manifests
from ingest.archive.reading import ObjectReader, OpenResult
from ingest.archive.store import ObjectMissing, ObjectStore
from ingest.changelog.envelope import RECORD

REMEDY = "restore the object from a version or a copy of the bucket"


class ManifestArchive:
    """The archive of one pipeline."""

    unchecked: Sequence[str] = ()

    def __init__(self, store: ObjectStore, pipeline: str) -> None:
        self._store = store
        self._pipeline = pipeline
        self._reader = ObjectReader(ArchivedObject, lambda entry: open_object(store, entry), REMEDY)

    def objects(self) -> Sequence[ArchivedObject]:
        """Returns the objects of all manifests in the order of their capture batches."""
        return [o for manifest in self.manifests() for o in manifest.objects]

    def manifests(self) -> Sequence[Manifest]:
        """Returns the manifests in the order of their capture batches."""
        return list(manifests(self._store, self._pipeline))

    def records(self, spark: SparkSession, objects: Sequence[ArchivedObject]) -> DataFrame:
        return self._reader.rows(spark, objects, RECORD)

    def damages(
        self, spark: SparkSession, objects: Sequence[ArchivedObject], on_checked: OnChecked = lambda _: None
    ) -> list[Damage]:
        return self._reader.damages(spark, objects, on_checked)


def open_object(store: ObjectStore, entry: ArchivedObject) -> OpenResult:
    """Returns the object's records; or None and a description of the damage."""
    body, damage = fetch_object(store, entry)
    return (None, damage) if body is None else parse_object(body, entry)


def fetch_object(store: ObjectStore, entry: ArchivedObject) -> tuple[bytes | None, str | None]:
    """Returns the object's bytes, verified by their SHA-256; or None and a description of the damage."""
    try:
        body = store.get(entry.key)
    except ObjectMissing:
        return None, "is missing"
    if len(body) < entry.size:
        return None, f"is truncated: {len(body)} of {entry.size} bytes"
    if hashlib.sha256(body).hexdigest() != entry.sha256:
        return None, "was altered: its hash is another one"
    return body, None


def parse_object(body: bytes, entry: ArchivedObject, columns: Sequence[str] | None = None) -> OpenResult:
    """Parses an object's bytes and compares its coordinates with its manifest entry.

    `columns`: which to read, among them `topic`, `partition` and `offset`; all by default."""
    table = pq.read_table(pa.BufferReader(body), columns=columns and list(columns), use_threads=False)
    offsets: Any = table.column("offset")
    coordinates = (table.num_rows, offsets[0].as_py(), offsets[-1].as_py())
    if coordinates != (entry.records, entry.first_offset, entry.last_offset) or not _ascend(offsets):
        return None, "does not hold the offsets that its manifest tells of"
    if any(pc.unique(table.column(c)).to_pylist() != [getattr(entry, c)] for c in ("topic", "partition")):
        return None, "holds another topic partition than its manifest tells of"
    return table, None


def _ascend(offsets: pa.ChunkedArray) -> bool:
    steps = pc.pairwise_diff(offsets.combine_chunks())
    return bool(pc.all(pc.greater(steps, 0), min_count=0).as_py())
