"""The archive as a source: its records in the order in which they were captured, from any offset on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.archive import ArchivedObject, ObjectStore
from ingest.archive.manifest import manifests
from ingest.archive.reading import records
from ingest.sources.contract import Offsets, Range


class ArchiveSource:
    """All that is archived of one pipeline. A range ends where an object ends, so each is read once."""

    def __init__(self, store: ObjectStore, pipeline: str) -> None:
        self._store = store
        self._pipeline = pipeline
        self._listed: list[ArchivedObject] | None = None

    def until_now(self) -> None:
        """Objects that are archived later are not read by this run."""
        self._objects()

    def pending(self, captured: Offsets, limit: int) -> Range | None:
        start, end = Offsets(), Offsets()
        left = [o for o in self._objects() if o.last_offset >= captured.get(o.topic, {}).get(o.partition, 0)]
        taken = 0
        for number, one in enumerate(left):
            if taken >= limit:
                return Range(start, end, behind=sum(o.records for o in left[number:]))
            begin = captured.get(one.topic, {}).get(one.partition, one.first_offset)
            start.setdefault(one.topic, {}).setdefault(one.partition, begin)
            end.setdefault(one.topic, {})[one.partition] = one.last_offset + 1
            taken += one.records
        return Range(start, end) if left else None

    def read(self, spark: SparkSession, span: Range) -> DataFrame:
        inside = [o for o in self._objects() if _overlaps(o, span)]
        return records(spark, self._store, inside).where(_within(span, inside))

    def _objects(self) -> Sequence[ArchivedObject]:
        if self._listed is None:
            self._listed = [o for manifest in manifests(self._store, self._pipeline) for o in manifest.objects]
        return self._listed


def _overlaps(one: ArchivedObject, span: Range) -> bool:
    end = span.end.get(one.topic, {}).get(one.partition)
    return end is not None and one.first_offset < end and one.last_offset >= span.start[one.topic][one.partition]


def _within(span: Range, objects: Sequence[ArchivedObject]) -> Column:
    """Of objects that lie in the span as a whole nothing has to be left out."""
    parts = []
    for one in objects:
        start, end = span.start[one.topic][one.partition], span.end[one.topic][one.partition]
        if one.first_offset < start or one.last_offset >= end:
            here = (F.col("topic") == one.topic) & (F.col("partition") == one.partition)
            parts.append(~here | F.col("offset").between(start, end - 1))
    return reduce(lambda one, other: one & other, parts, F.lit(True))
