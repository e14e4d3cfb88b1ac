"""Objects back into records, each checked against what its manifest says of it before a row of it is used."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from ingest.archive.manifest import ArchivedObject
from ingest.archive.store import Absent, ObjectStore
from ingest.changelog.envelope import RECORD
from ingest.errors import ChangelogUnusable
from ingest.local_rows import local_rows

_BYTES_A_TASK = 16 << 20
_LISTED = T.StructType(
    [T.StructField(f.name, T.LongType() if f.type == "int" else T.StringType()) for f in fields(ArchivedObject)]
)
_PROBLEM = T.StructType([T.StructField(name, T.StringType()) for name in ("key", "what", "events")])


@dataclass(frozen=True)
class Damage:
    """An object that is not what was written. `events`: which records it held."""

    key: str
    what: str
    events: str


def records(spark: SparkSession, store: ObjectStore, objects: Sequence[ArchivedObject]) -> DataFrame:
    """`RECORD` rows of these objects. Reading them fails where one is not what was written: no table gets smaller
    without a word."""
    schema = to_arrow_schema(RECORD, timezone="UTC")

    def read(listed: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for one in _given(listed):
            table, damage = _opened(store, one)
            if table is None:
                raise ChangelogUnusable(
                    f"{one.key} in the archive {damage}; it held {one.told}",
                    "restore the object from a version or a copy of the bucket",
                )
            yield from table.cast(schema).to_batches()

    return _spread(spark, objects).mapInArrow(read, RECORD)


def damages(spark: SparkSession, store: ObjectStore, objects: Sequence[ArchivedObject]) -> list[Damage]:
    """Every object of these that is missing, truncated or altered: all are read, none is kept."""

    def check(listed: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for one in _given(listed):
            _, damage = _opened(store, one)
            if damage is not None:
                yield pa.RecordBatch.from_pylist([asdict(Damage(one.key, damage, one.told))])

    found = _spread(spark, objects).mapInArrow(check, _PROBLEM).orderBy("key").collect()  # a row per damaged object
    return [Damage(**row.asDict()) for row in found]


def _spread(spark: SparkSession, objects: Sequence[ArchivedObject]) -> DataFrame:
    listed = local_rows(spark, [asdict(o) for o in objects], _LISTED)
    tasks = min(len(objects), -(-sum(o.size for o in objects) // _BYTES_A_TASK))
    return listed.repartition(tasks, F.col("key")) if tasks > 1 else listed


def _given(listed: Iterable[pa.RecordBatch]) -> Iterator[ArchivedObject]:
    for batch in listed:
        yield from (ArchivedObject(**row) for row in batch.to_pylist())


def _opened(store: ObjectStore, one: ArchivedObject) -> tuple[pa.Table | None, str | None]:
    """Its records; or what is wrong with it."""
    try:
        body = store.get(one.key)
    except Absent:
        return None, "is missing"
    if len(body) < one.size:
        return None, f"is truncated: {len(body)} of {one.size} bytes"
    if hashlib.sha256(body).hexdigest() != one.sha256:
        return None, "was altered: its hash is another one"
    table = pq.read_table(io.BytesIO(body))
    offsets: Any = table.column("offset")
    held = (table.num_rows, offsets[0].as_py(), offsets[-1].as_py())
    if held != (one.records, one.first_offset, one.last_offset) or not _ascend(offsets):
        return None, "does not hold the offsets that its manifest tells of"
    return table, None


def _ascend(offsets: pa.ChunkedArray) -> bool:
    steps = pc.pairwise_diff(offsets.combine_chunks())
    return bool(pc.all(pc.greater(pc.drop_null(steps), 0)).as_py() is not False)
