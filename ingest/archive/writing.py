"""Writes records as archived objects: each task writes its sorted range of records as Parquet files of bounded size."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from ingest.archive.manifest import OBJECT, ArchivedObject, objects_folder
from ingest.archive.store import ObjectStore
from ingest.changelog.envelope import CAPTURED
from ingest.names import path_segment
from ingest.spark.arrow_tasks import map_in_arrow

_ROWS_A_TASK = 1_000_000
_OBJECT_BYTES = 64 << 20
"""The size of an object's records before compression. It bounds the memory of a task that reads the object, and sets
how finely reads are distributed."""


def write_objects(
    records: DataFrame, rows: int, store: ObjectStore, pipeline: str, object_bytes: int = _OBJECT_BYTES
) -> list[ArchivedObject]:
    """Writes `CAPTURED` rows and returns their objects, by topic, partition and offset. `rows`: their number, at
    most."""
    place = ["topic", "partition", "offset"]
    tasks = -(-rows // _ROWS_A_TASK)
    objects_frame = records.repartitionByRange(tasks, *place) if tasks > 1 else records.coalesce(1)
    ordered = objects_frame.sortWithinPartitions(*place).select(*CAPTURED.names)
    folder = objects_folder(pipeline)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for one in _objects(_slices(batches), store, folder, object_bytes):
            yield pa.RecordBatch.from_pylist([asdict(one)])

    found = map_in_arrow(ordered, write, OBJECT).collect()  # a row per object
    return sorted((ArchivedObject(**r.asDict()) for r in found), key=lambda o: (o.topic, o.partition, o.first_offset))


@dataclass(frozen=True)
class _PartitionSlice:
    """Consecutive records of one topic partition."""

    topic: str
    partition: int
    rows: pa.RecordBatch


def _slices(batches: Iterable[pa.RecordBatch]) -> Iterator[_PartitionSlice]:
    for batch in batches:
        if not batch.num_rows:
            continue
        topics = batch.column("topic").dictionary_encode().indices.to_numpy(zero_copy_only=False)
        partitions = batch.column("partition").to_numpy(zero_copy_only=False)
        changes = np.flatnonzero((np.diff(topics) != 0) | (np.diff(partitions) != 0)) + 1
        ends = [*changes.tolist(), batch.num_rows]
        for begin, end in zip([0, *ends], ends, strict=False):
            rows = batch.slice(begin, end - begin)
            yield _PartitionSlice(rows.column("topic")[0].as_py(), rows.column("partition")[0].as_py(), rows)


def _objects(
    slices: Iterable[_PartitionSlice], store: ObjectStore, folder: str, object_bytes: int
) -> Iterator[ArchivedObject]:
    file: ObjectFile | None = None
    for part in slices:
        if file is not None and (not file.accepts(part.topic, part.partition) or file.size >= object_bytes):
            yield file.upload(store, folder)
            file = None
        if file is None:
            file = ObjectFile(part.topic, part.partition, part.rows.schema)
        file.add(part.rows)
    if file is not None:
        yield file.upload(store, folder)


class ObjectFile:
    """A Parquet file of one topic partition's records, written in memory."""

    def __init__(self, topic: str, partition: int, schema: pa.Schema) -> None:
        self._topic, self._partition = topic, partition
        self._bytes = io.BytesIO()
        # Statistics in the footer would leak the least and greatest key and value, which may be personal.
        self._writer = pq.ParquetWriter(self._bytes, schema, compression="zstd", write_statistics=False)
        self._first = self._last = -1
        self._records = 0
        self.size = 0
        """Bytes before compression."""
        self._times: list[int] = []

    def accepts(self, topic: str, partition: int) -> bool:
        return (topic, partition) == (self._topic, self._partition)

    def add(self, rows: pa.RecordBatch) -> None:
        self._writer.write_batch(rows)
        self.size += rows.nbytes
        if not self._records:
            self._first = rows.column("offset")[0].as_py()
        self._records += rows.num_rows
        self._last = rows.column("offset")[-1].as_py()
        times = pc.min_max(rows.column("timestamp").cast(pa.timestamp("ms", "UTC"), safe=False).cast("int64"))
        self._times += [t for t in times.as_py().values() if t is not None]

    def upload(self, store: ObjectStore, folder: str) -> ArchivedObject:
        """Uploads the file and returns its entry. Its key contains its hash, so one that a dead run left is the
        same."""
        self._writer.close()
        body = self._bytes.getvalue()
        digest = hashlib.sha256(body).hexdigest()
        place = f"{path_segment(self._topic)}/{self._partition}/{self._first:020d}-{digest[:16]}.parquet"
        store.put_once(folder + place, body)
        times = self._times or [0]
        summary = (self._first, self._last, self._records, len(body), min(times), max(times), digest)
        return ArchivedObject(folder + place, self._topic, self._partition, *summary)
