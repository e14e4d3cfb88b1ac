"""Deliveries of records that several readers of a pipeline have captured: the stream, and backfills from the archive or
from Kafka. An event of a table without a key counts as often as its record was delivered, whichever reader has it.

A delivery is a record at its coordinates (topic, partition, offset) in one life of the topic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest.lakehouse.bronze import COORDINATES, Bronze

_IMAGES = ("c", "r", "u")
_FIRST = "_from"


@dataclass(frozen=True)
class Captured:
    """What one reader holds of the changelog's topics: `events`, of which those are folded that `chosen` selects."""

    bronze: Bronze
    events: DataFrame
    chosen: Column | None = None

    @property
    def topic_ids(self) -> Mapping[str, str]:
        return self.bronze.topic_ids()

    @property
    def folded(self) -> DataFrame:
        return self.events if self.chosen is None else self.events.where(self.chosen)


@dataclass(frozen=True)
class EarlierReaders:
    """What readers before one hold. `stream`: the pipeline's own, which captures every record from its first one on."""

    mine: Bronze
    stream: Captured | None
    before: Sequence[Captured]

    def new(self, events: DataFrame) -> DataFrame:
        """The events that no reader before this one has, and that the stream will not capture."""
        events = self._before_stream(events)
        for other in self.before:
            known = other.folded.where(self._same_topic(other)).select(*COORDINATES)
            events = events.join(known, COORDINATES, "left_anti")
        return events

    def _before_stream(self, events: DataFrame) -> DataFrame:
        """The events that lie before the first one that the stream has captured of their partition."""
        if self.stream is None:
            return events
        joined = events.join(F.broadcast(self._begins), ["topic", "partition"], "left")
        return joined.where(F.coalesce(F.col("offset") < F.col(_FIRST), F.lit(True))).select(*events.columns)

    @cached_property
    def _begins(self) -> DataFrame:
        """The first offset of each partition that the stream has captured."""
        assert self.stream is not None
        mine = self.stream.events.where(self._same_topic(self.stream))
        found = mine.groupBy("topic", "partition").agg(F.min("offset").alias(_FIRST))
        return found.localCheckpoint()  # a row per partition

    @property
    def past(self) -> DataFrame:
        """The events that these readers have counted, each once, and of no other topic's life."""
        found = [self._before_stream(other.folded.where(self._same_topic(other))) for other in self.before]
        if self.stream is not None:
            found.append(self.stream.folded.where(self._same_topic(self.stream)))
        return reduce(DataFrame.unionByName, found).dropDuplicates(COORDINATES)

    def _same_topic(self, other: Captured) -> Column:
        """Selects topics that both have read, as far as is known of both: a topic that was created anew is another."""
        mine, others = self.mine.topic_ids(), other.topic_ids
        anew = [topic for topic, id_ in others.items() if mine.get(topic, id_) != id_]
        return ~F.col("topic").isin(*anew)


def delivered(readers: Sequence[Captured], table: str) -> int:
    """Number of deliveries that bring a row image of `table`. A table without a key has no more rows than these."""
    ids: dict[str, str] = {}
    found = []
    for reader in readers:
        ids = {**reader.topic_ids, **ids}
        pairs = [F.lit(text) for pair in {**ids, **reader.topic_ids}.items() for text in pair]
        life = F.element_at(F.create_map(*pairs), F.col("topic")) if pairs else F.lit(None).cast("string")
        mine = reader.events.where((F.col("source_table") == table) & F.col("op").isin(*_IMAGES))
        found.append(mine.select(*COORDINATES, F.coalesce(life, F.lit("")).alias("life")))
    return reduce(DataFrame.unionByName, found).distinct().count() if found else 0
