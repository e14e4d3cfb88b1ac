"""What an erasure leaves in compacted topics: of each key the last record, which is never deleted for its age. A null
tombstone behind it lets the topic's cleaner take it away.

Whoever writes into the topic meanwhile is not held up. What comes in between the look at a key's last record and the
tombstone is written once more, behind that: an event that comes twice is harmless, a lost one isn't.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.changelog.envelope import ERASED
from ingest.config import Pipeline
from ingest.cut import cut, released
from ingest.sources.contract import Offsets, Range
from ingest.sources.kafka import KafkaSource
from ingest.sources.kafka_admin import KafkaAdmin
from ingest.tables.bronze import COORDINATES

_KEY = ["topic", "partition", "key"]
COPIED = "ingest.copied"
"""The header of a record that is written once more. Its value: the offset at which it stood."""


class CompactedTopics:
    """Of one pipeline. Its source's user needs Write on them."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline) -> None:
        self._spark = spark
        self._properties = pipeline.source.kafka
        self._admin = KafkaAdmin(self._properties)
        topics = self._admin.topics(pipeline.source.topics, pipeline.source.topic_pattern)
        told = self._admin.properties(topics)
        self.topics = [topic for topic in topics if "compact" in told[topic].get("cleanup.policy", "")]

    @released()
    def entomb(self, erased: DataFrame) -> int:
        """Writes a tombstone for each key whose last record is one of `erased` (`COORDINATES`, `timestamp`, `request`).
        How many."""
        mine = cut(erased.where(F.col("topic").isin(*self.topics)))
        begin = self._begin(mine)
        end = self._admin.end_offsets(begin)
        read = Range(begin, {t: {p: end[t][p] for p in ps} for t, ps in begin.items()})
        if not read.size:
            return 0
        keys = cut(self._lasts(read).join(mine, [*COORDINATES, "timestamp"]).select(*_KEY, "request"))
        count = keys.count()
        if count:
            mark = _header(ERASED, F.col("request")).alias("headers")
            self._write(keys.select(*_KEY, F.lit(None).cast("binary").alias("value"), mark))
            while self._put_behind(keys, read.end):
                pass
        return count

    def _begin(self, erased: DataFrame) -> Offsets:
        """The first of these in each partition, or where that begins by now."""
        firsts = erased.groupBy("topic", "partition").agg(F.min("offset").alias("first")).collect()  # a row each
        there = self._admin.beginning_offsets({row["topic"] for row in firsts})
        begin: Offsets = {}
        for topic, partition, first in firsts:
            if partition in there[topic]:
                begin.setdefault(topic, {})[partition] = max(first, there[topic][partition])
        return begin

    def _read(self, span: Range) -> DataFrame:
        return KafkaSource(self._properties, None, None).read(self._spark, span).where(F.col("key").isNotNull())

    def _lasts(self, span: Range) -> DataFrame:
        """Where the last record of each key is, of those that have a value."""
        last = F.max_by(F.struct("offset", "timestamp", F.col("value").isNull().alias("_gone")), "offset")
        lasts = self._read(span).groupBy(*_KEY).agg(last.alias("_last")).select(*_KEY, "_last.*")
        return lasts.where(~F.col("_gone")).drop("_gone")

    def _put_behind(self, keys: DataFrame, since: Offsets) -> bool:
        """Writes once more what others have written since then, and which is not what the topic says last. Whether
        there was any."""
        now = self._admin.end_offsets(since)
        read = self._read(Range(since, {t: {p: now[t][p] for p in ps} for t, ps in since.items()}))
        copied, ours = _marked(COPIED), _marked(ERASED) | _marked(COPIED)
        place = F.when(copied, F.element_at(F.filter("headers", lambda h: h["key"] == COPIED), 1)["value"])
        told = read.join(keys.select(*_KEY), _KEY, "left_semi").withColumns(
            {"_ours": ours, "_of": F.coalesce(place.cast("string").cast("long"), F.when(~ours, F.col("offset")))}
        )
        theirs = F.max_by(F.struct("offset", "value", "headers"), F.when(~F.col("_ours"), F.col("offset")))
        said = told.groupBy(*_KEY).agg(theirs.alias("_theirs"), F.max_by("_of", "offset").alias("_last"))
        stale = F.coalesce(F.col("_last") != F.col("_theirs.offset"), F.lit(True))
        behind = cut(said.where(F.col("_theirs.offset").isNotNull() & stale))
        if behind.isEmpty():
            return False
        mark, held = _header(COPIED, F.col("_theirs.offset").cast("string")), F.col("_theirs.headers")
        headers = F.when(held.isNull(), mark).otherwise(F.concat(held, mark))
        self._write(behind.select(*_KEY, "_theirs.value", headers.alias("headers")))
        return True

    def _write(self, records: DataFrame) -> None:
        told = {f"kafka.{name}": value for name, value in self._properties.items()}
        records.write.format("kafka").options(**told).save()


def _header(name: str, value: Column) -> Column:
    return F.array(F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value")))


def _marked(name: str) -> Column:
    """Whether a record has this header."""
    return F.coalesce(F.array_contains(F.col("headers")["key"], name), F.lit(False))
