"""Finds records that several readers of a pipeline have delivered: the stream, and backfills from the archive or from
Kafka. An event of a keyless table counts once per record, whichever readers have delivered it.

A record is identified by its coordinates (topic, partition, offset) and the id of its topic: a topic that was created
anew under the same name is another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.batches.rules import Rules
from ingest.lakehouse.backfills import Backfills
from ingest.lakehouse.bronze import COORDINATES, Bronze
from ingest.names import Lakehouse

_IMAGES = ("c", "r", "u")
_FIRST = "_from"


@dataclass(frozen=True)
class ReaderEvents:
    """The events that one reader has captured. `chosen`: selects those that are merged; None: all."""

    bronze: Bronze
    events: DataFrame
    chosen: Column | None = None

    @property
    def topic_ids(self) -> Mapping[str, str]:
        return self.bronze.topic_ids()

    @property
    def merged(self) -> DataFrame:
        return self.events if self.chosen is None else self.events.where(self.chosen)


@dataclass(frozen=True)
class EarlierReaders:
    """The readers that are merged before the one of `bronze`. `stream`: the pipeline's own, which captures every record
    from its first one on."""

    bronze: Bronze
    stream: ReaderEvents | None
    earlier: Sequence[ReaderEvents]

    def undelivered(self, events: DataFrame) -> DataFrame:
        """Returns the events whose record no earlier reader has delivered, and that the stream will not capture."""
        events = self._before_stream(events)
        for other in self.earlier:
            known = other.merged.where(self._is_same_topic(other)).select(*COORDINATES)
            events = events.join(known, COORDINATES, "left_anti")
        return events

    def _before_stream(self, events: DataFrame) -> DataFrame:
        """Returns the events that lie before the stream's first one of their partition."""
        if self.stream is None:
            return events
        joined = events.join(F.broadcast(self._first_offsets), ["topic", "partition"], "left")
        return joined.where(F.coalesce(F.col("offset") < F.col(_FIRST), F.lit(True))).select(*events.columns)

    @cached_property
    def _first_offsets(self) -> DataFrame:
        """Returns `topic`, `partition` and the first offset that the stream has captured."""
        assert self.stream is not None
        rows = self.stream.events.where(self._is_same_topic(self.stream))
        found = rows.groupBy("topic", "partition").agg(F.min("offset").alias(_FIRST))
        return found.localCheckpoint()  # a row per partition

    @property
    def delivered(self) -> DataFrame:
        """Returns the merged events of these readers, one per record, of the same topics as `bronze`."""
        found = [self._before_stream(other.merged.where(self._is_same_topic(other))) for other in self.earlier]
        if self.stream is not None:
            found.append(self.stream.merged.where(self._is_same_topic(self.stream)))
        return reduce(DataFrame.unionByName, found).dropDuplicates(COORDINATES)

    def _is_same_topic(self, other: ReaderEvents) -> Column:
        """Returns whether an event's topic is the same in both readers, as far as its id is known to both."""
        own_ids, other_ids = self.bronze.topic_ids(), other.topic_ids
        recreated = [topic for topic, id_ in other_ids.items() if own_ids.get(topic, id_) != id_]
        return ~F.col("topic").isin(*recreated)


def count_row_deliveries(readers: Sequence[ReaderEvents], table: str) -> int:
    """Returns the number of delivered records with a row image of `table`. A keyless table has no more rows than
    these."""
    ids: dict[str, str] = {}
    found = []
    for reader in readers:
        ids = {**reader.topic_ids, **ids}
        pairs = [F.lit(text) for pair in {**ids, **reader.topic_ids}.items() for text in pair]
        life = F.element_at(F.create_map(*pairs), F.col("topic")) if pairs else F.lit(None).cast("string")
        rows = reader.events.where((F.col("source_table") == table) & F.col("op").isin(*_IMAGES))
        found.append(rows.select(*COORDINATES, F.coalesce(life, F.lit("")).alias("life")))
    return reduce(DataFrame.unionByName, found).distinct().count() if found else 0


class OtherReaders:
    """The readers of a pipeline besides the one of `bronze`: its stream, and backfills from other sources. If `bronze`
    is a part of a bronze table, the rest of it counts as another reader's."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: str,
        lakehouse: Lakehouse,
        rules: Rules,
        bronze: Bronze,
        backfills: Backfills,
    ) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._lakehouse = lakehouse
        self._rules = rules
        self._bronze = bronze
        self._backfills = backfills

    def captured(self) -> DataFrame | None:
        """Returns the events that they have captured, merged or not, and perhaps those of `bronze`; None if there are
        no other readers."""
        numbers = [backfill.number for backfill in self._backfills.all()]
        paths = [self._lakehouse.backfilled(self._pipeline, number) for number in numbers]
        found = map(self._bronze_at, [self._lakehouse.bronze(self._pipeline), *paths])
        others = [b for b in found if b.last_batch() and (self._bronze.is_part or b.folder != self._bronze.folder)]
        return reduce(DataFrame.unionByName, (bronze.rows() for bronze in others)) if others else None

    def _bronze_at(self, path: str) -> Bronze:
        rules = self._rules
        return Bronze(self._spark, path, rules.epochs, rules.names, rules.tuning)
