"""What an erasure leaves in compacted topics: of each key the last record, which is never deleted for its age. A null
tombstone behind it lets the topic's cleaner take it away.

Whoever writes into the topic meanwhile is not held up. What comes in between the look at a key's last record and the
tombstone is written once more, behind that: an event that comes twice is harmless, a lost one isn't. Nothing is
remembered but by the topic itself, so who died on the way begins anew and ends the same.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.changelog.envelope import ERASED, has_header, single_header
from ingest.config import Pipeline
from ingest.errors import Contended
from ingest.lakehouse.bronze import COORDINATES
from ingest.sources.contract import OffsetRange, Offsets
from ingest.sources.kafka import KafkaSource
from ingest.sources.kafka_admin import KafkaAdmin
from ingest.sources.kafka_properties import spark_options
from ingest.spark.checkpoints import checkpoint, checkpoint_scope

_PARTITION = ["topic", "partition"]
COPIED = "ingest.copied"
"""The header of a record that is written once more. Its value: the offset at which it stood."""
_PASSES = 10


class CompactedTopics:
    """Of one pipeline. Its source's user needs Write on them."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline) -> None:
        self._spark = spark
        self._properties = pipeline.source.kafka
        self._admin = KafkaAdmin(self._properties)
        topics = self._admin.topics(pipeline.source.topics, pipeline.source.topic_pattern)
        told = self._admin.properties(topics)
        self.topics = [topic for topic in topics if "compact" in told[topic].get("cleanup.policy", "")]

    @checkpoint_scope()
    def write_tombstones(self, erased: DataFrame) -> int:
        """Writes a tombstone for each key whose last record is one of `erased` (`COORDINATES`, `timestamp`, `request`).
        How many.

        Raises Contended where the topics don't come to say what they should."""
        mine = checkpoint(erased.where(F.col("topic").isin(*self.topics)))
        begin, count = self._begin(mine), 0
        for _ in range(_PASSES):
            end = self._admin.end_offsets(begin)
            span = OffsetRange(begin, {t: {p: end[t][p] for p in ps} for t, ps in begin.items()})
            if not span.size:
                return count
            wrong = checkpoint(_said(self._read(span), mine).where(_buried() | _covered()))
            if wrong.isEmpty():
                return count
            tombs, covered = wrong.where(_buried()), wrong.where(_covered())
            if buried := tombs.count():
                count += buried
                nothing, request = F.lit(None).cast("binary").alias("value"), F.col("last.request")
                self._write(tombs.select(*_PARTITION, "key", nothing, single_header(ERASED, request).alias("headers")))
            if not covered.isEmpty():
                self._write(self._copies(span, covered))
        raise Contended(
            "others write into compacted topics while tombstones are written, or leave transactions open",
            "run the same again: it goes on where it stood",
        )

    def _begin(self, erased: DataFrame) -> Offsets:
        """The first of these in each partition, or where that begins by now."""
        firsts = erased.groupBy(*_PARTITION).agg(F.min("offset").alias("first")).collect()  # a row each
        there = self._admin.beginning_offsets({row["topic"] for row in firsts})
        begin: Offsets = {}
        for topic, partition, first in firsts:
            if partition in there[topic]:
                begin.setdefault(topic, {})[partition] = max(first, there[topic][partition])
        return begin

    def _read(self, span: OffsetRange) -> DataFrame:
        return KafkaSource(self._properties, None, None).read(self._spark, span).where(F.col("key").isNotNull())

    def _copies(self, span: OffsetRange, covered: DataFrame) -> DataFrame:
        places = covered.select(*_PARTITION, F.col("theirs.offset").alias("offset"))
        copied = single_header(COPIED, F.col("offset").cast("string"))
        headers = F.when(F.col("headers").isNull(), copied).otherwise(F.concat("headers", copied))
        found = self._read(span).join(F.broadcast(places), COORDINATES, "left_semi")
        return found.select(*_PARTITION, "key", "value", headers.alias("headers"))

    def _write(self, records: DataFrame) -> None:
        records.write.format("kafka").options(**spark_options(self._properties)).save()


def _said(records: DataFrame, erased: DataFrame) -> DataFrame:
    """What a topic says of each key: its `last` record, and the last of `theirs`, which no erasure wrote. Of each the
    `offset`, that of the record whose value it is (`told`), whether it `holds` a value, and the `request` by which it
    is erased."""
    copied, genuine = has_header(COPIED), ~has_header(COPIED) & ~has_header(ERASED)
    place = F.element_at(F.filter("headers", lambda header: header["key"] == COPIED), 1)["value"]
    told = F.when(copied, place.cast("string").cast("long")).when(genuine, F.col("offset"))
    holds = F.col("value").isNotNull().alias("holds")
    read = records.select(*COORDINATES, "timestamp", "key", genuine.alias("genuine"), told.alias("told"), holds)
    asked = read.join(erased, [*COORDINATES, "timestamp"], "left")
    record = F.struct("offset", "told", "holds", "request")
    return asked.groupBy(*_PARTITION, "key").agg(
        F.max_by(record, "offset").alias("last"),
        F.max_by(record, F.when(F.col("genuine"), F.col("offset"))).alias("theirs"),
    )


def _buried() -> Column:
    """Whether a tombstone has to follow: the last record is an erased one."""
    return F.col("last.holds") & F.col("last.request").isNotNull()


def _covered() -> Column:
    """Whether their last record is none that is erased, and not what the topic says last. What they have said before
    an erased one was over with that."""
    said = F.coalesce(F.col("last.told") == F.col("theirs.offset"), F.lit(False))
    return F.coalesce(F.col("theirs.holds"), F.lit(False)) & F.col("theirs.request").isNull() & ~said
