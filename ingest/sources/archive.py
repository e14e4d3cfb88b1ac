"""The archive as a source: its records in the order of their capture, from any offset on."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.archive import Layout, StoredObject
from ingest.sources.contract import OffsetRange, Offsets


class ArchiveSource:
    """The archived records of one pipeline. A range ends where an object ends, so that each object is read once."""

    def __init__(self, archive: Layout[Any], begin: datetime | None = None, end: datetime | None = None) -> None:
        """`begin`, `end`: read only records with a timestamp in [`begin`, `end`); None leaves an end open."""
        self._archive = archive
        self._begin, self._end = begin, end
        self._listed: list[StoredObject] | None = None

    def pin_end(self) -> None:
        """Fixes the list of objects: those that are archived later are not read by this run."""
        self._objects()

    def pending(self, captured: Offsets, limit: int) -> OffsetRange | None:
        start, end = Offsets(), Offsets()
        left = [o for o in self._objects() if o.last_offset >= captured.get(o.topic, {}).get(o.partition, 0)]
        taken = 0
        for number, one in enumerate(left):
            if taken >= limit:
                return OffsetRange(start, end, behind=sum(o.records for o in left[number:]))
            begin = captured.get(one.topic, {}).get(one.partition, one.first_offset)
            start.setdefault(one.topic, {}).setdefault(one.partition, begin)
            end.setdefault(one.topic, {})[one.partition] = one.last_offset + 1
            taken += one.records
        return OffsetRange(start, end) if left else None

    def read(self, spark: SparkSession, span: OffsetRange) -> DataFrame:
        inside = [o for o in self._objects() if _overlaps(o, span)]
        found = self._archive.records(spark, inside).where(_within(span, inside))
        if self._begin is not None:
            found = found.where(F.col("timestamp") >= F.lit(self._begin))
        return found if self._end is None else found.where(F.col("timestamp") < F.lit(self._end))

    def _objects(self) -> Sequence[StoredObject]:
        if self._listed is None:
            begin, end = (at and at.timestamp() * 1000 for at in (self._begin, self._end))
            self._listed = [o for o in self._archive.objects() if o.written_between(begin, end)]
        return self._listed


def _overlaps(one: StoredObject, span: OffsetRange) -> bool:
    end = span.end.get(one.topic, {}).get(one.partition)
    return end is not None and one.first_offset < end and one.last_offset >= span.start[one.topic][one.partition]


def _within(span: OffsetRange, objects: Sequence[StoredObject]) -> Column:
    """Returns the filter for the span. Objects that lie within the span as a whole need none."""
    parts = []
    for one in objects:
        start, end = span.start[one.topic][one.partition], span.end[one.topic][one.partition]
        if one.first_offset < start or one.last_offset >= end:
            here = (F.col("topic") == one.topic) & (F.col("partition") == one.partition)
            parts.append(~here | F.col("offset").between(start, end - 1))
    return reduce(lambda one, other: one & other, parts, F.lit(True))
