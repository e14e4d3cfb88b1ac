"""Capture: what a source has, into bronze, once."""

from __future__ import annotations

from pyspark.sql import SparkSession

from ingest.changelog.envelope import Naming, events
from ingest.sources.contract import Offsets, Source
from ingest.tables.bronze import Bronze, Captured


class Capture:
    """Moves one source's records into bronze, batch by batch; bronze alone remembers how far it came."""

    def __init__(self, spark: SparkSession, source: Source, bronze: Bronze, naming: Naming, limit: int) -> None:
        self._spark = spark
        self._source = source
        self._bronze = bronze
        self._naming = naming
        self._limit = limit
        self.captured = bronze.captured()

    def until_now(self) -> None:
        """From here on only what the source holds at this moment is captured."""
        self._source.until_now()

    def step(self) -> int:
        """One batch. How many records it spans: 0 means that there was nothing new."""
        span = self._source.pending(self.captured.offsets, self._limit)
        if span is None:
            return 0
        batch = events(self._source.read(self._spark, span), self._naming)
        upto = Captured(self.captured.batch + 1, _advanced(self.captured.offsets, span.end))
        self._bronze.append(batch, upto)
        self.captured = upto
        return span.size


def _advanced(offsets: Offsets, by: Offsets) -> Offsets:
    moved = {topic: dict(partitions) for topic, partitions in offsets.items()}
    for topic, partitions in by.items():
        moved.setdefault(topic, {}).update(partitions)
    return moved
