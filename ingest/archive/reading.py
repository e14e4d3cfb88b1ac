"""Reads archived objects into rows; each object is verified before any of its rows is used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Generic

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from ingest.archive.layout import Damage, ObjectT, OnChecked, row_type
from ingest.errors import ChangelogUnusable
from ingest.spark.arrow_tasks import map_in_arrow
from ingest.spark.local_rows import local_rows

_BYTES_A_TASK = 16 << 20
_MIN_BYTES_A_TASK = 1 << 20
_TASKS_AT_ONCE = 4
"""Tasks per core in a job of `damages`: progress is reported after each job."""
_PROBLEM = T.StructType([T.StructField(name, T.StringType()) for name in ("key", "what", "events")])

OpenResult = tuple[pa.Table | None, str | None]
"""An object's rows; or None and a description of its damage."""


@dataclass(frozen=True)
class ObjectReader(Generic[ObjectT]):
    """Reads the objects of one layout. Serializable for Spark's tasks. `remedy`: of the error for a damaged object."""

    kind: type[ObjectT]
    open_object: Callable[[ObjectT], OpenResult]
    remedy: str

    def rows(self, spark: SparkSession, objects: Sequence[ObjectT], schema: T.StructType) -> DataFrame:
        """Returns the objects' rows as `schema`. Reading them raises ChangelogUnusable where an object is damaged."""
        wanted = to_arrow_schema(schema, timezone="UTC")

        def read(listed: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for one in self._entries_of(listed):
                table, damage = self.open_object(one)
                if table is None:
                    raise ChangelogUnusable(
                        f"{one.key} in the archive {damage}; it held {one.description}", self.remedy
                    )
                yield from table.select(wanted.names).cast(wanted).to_batches()

        return map_in_arrow(objects_frame(spark, self.kind, objects), read, schema)

    def damages(self, spark: SparkSession, objects: Sequence[ObjectT], on_checked: OnChecked) -> list[Damage]:
        """Returns the damaged ones of these objects, by key. `seen` is called after each job with its objects."""

        def check(listed: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for one in self._entries_of(listed):
                _, damage = self.open_object(one)
                if damage is not None:
                    yield pa.RecordBatch.from_pylist([asdict(Damage(one.key, damage, one.description))])

        found: list[Damage] = []
        for part in _slices(objects, spark.sparkContext.defaultParallelism * _TASKS_AT_ONCE * _BYTES_A_TASK):
            rows = map_in_arrow(
                objects_frame(spark, self.kind, part), check, _PROBLEM
            ).collect()  # a row per damaged object
            found += [Damage(**row.asDict()) for row in rows]
            on_checked(part)
        return sorted(found, key=lambda damage: damage.key)

    def _entries_of(self, listed: Iterable[pa.RecordBatch]) -> Iterator[ObjectT]:
        for batch in listed:
            yield from (self.kind(**row) for row in batch.to_pylist())


def objects_frame(spark: SparkSession, kind: type[ObjectT], objects: Sequence[ObjectT]) -> DataFrame:
    """Returns a row per object, in as many partitions as their total size justifies."""
    listed = local_rows(spark, [asdict(o) for o in objects], row_type(kind))
    size = sum(o.size for o in objects)
    each = min(_BYTES_A_TASK, max(_MIN_BYTES_A_TASK, size // spark.sparkContext.defaultParallelism))
    tasks = min(len(objects), -(-size // each))
    # Round robin instead of a hash: tasks get equal numbers of objects, also where there are few.
    return listed.repartition(tasks) if tasks > 1 else listed


def _slices(objects: Sequence[ObjectT], size: int) -> Iterator[Sequence[ObjectT]]:
    """Yields consecutive objects of about `size` bytes in total."""
    part: list[ObjectT] = []
    total = 0
    for one in objects:
        part.append(one)
        total += one.size
        if total >= size:
            yield part
            part, total = [], 0
    if part:
        yield part
