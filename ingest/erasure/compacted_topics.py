"""Tombstones in compacted topics: a compacted topic keeps the last record of each key forever, so an erased last record
gets a null tombstone that lets the log cleaner remove it.

Producers are not blocked. A record that arrives between reading a key's last record and writing its tombstone is copied
behind the tombstone: a duplicate is harmless, a lost record isn't. All state is in the topic, so a run that was killed
is completed by the next one."""

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
"""Header of a record that was written a second time. Its value: the original offset."""
_PASSES = 10


class CompactedTopics:
    """The compacted topics of one pipeline. The source's user needs Write on them."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline) -> None:
        self._spark = spark
        self._properties = pipeline.source.kafka
        self._admin = KafkaAdmin(self._properties)
        topics = self._admin.topics(pipeline.source.topics, pipeline.source.changelog_pattern)
        properties = self._admin.properties(topics)
        self.topics = [topic for topic in topics if "compact" in properties[topic].get("cleanup.policy", "")]

    @checkpoint_scope()
    def write_tombstones(self, erased: DataFrame) -> int:
        """Writes a tombstone for each key whose last record is in `erased` (`COORDINATES`, `timestamp`, `request`) and
        returns their number.

        Raises Contended if the topics don't reach the wanted state within the passes."""
        erased_here = checkpoint(erased.where(F.col("topic").isin(*self.topics)))
        begin, count = self._first_offsets(erased_here), 0
        for _ in range(_PASSES):
            end = self._admin.end_offsets(begin)
            span = OffsetRange(begin, {t: {p: end[t][p] for p in ps} for t, ps in begin.items()})
            if not span.size:
                return count
            pending = checkpoint(_last_records(self._read(span), erased_here).where(_needs_tombstone() | _needs_copy()))
            if pending.isEmpty():
                return count
            erased_keys, overwritten = pending.where(_needs_tombstone()), pending.where(_needs_copy())
            if new_tombstones := erased_keys.count():
                count += new_tombstones
                null_value, request = F.lit(None).cast("binary").alias("value"), F.col("last.request")
                self._write(
                    erased_keys.select(*_PARTITION, "key", null_value, single_header(ERASED, request).alias("headers"))
                )
            if not overwritten.isEmpty():
                self._write(self._copies(span, overwritten))
        raise Contended(
            "other producers write into compacted topics while tombstones are written, or have open transactions",
            "run the same command again: it continues where it stopped",
        )

    def _first_offsets(self, erased: DataFrame) -> Offsets:
        """Returns the first erased offset in each partition, or the partition's beginning if that is later."""
        firsts = erased.groupBy(*_PARTITION).agg(F.min("offset").alias("first")).collect()  # a row each
        beginnings = self._admin.beginning_offsets({row["topic"] for row in firsts})
        begin: Offsets = {}
        for topic, partition, first in firsts:
            if partition in beginnings[topic]:
                begin.setdefault(topic, {})[partition] = max(first, beginnings[topic][partition])
        return begin

    def _read(self, span: OffsetRange) -> DataFrame:
        return KafkaSource(self._properties, None, None).read(self._spark, span).where(F.col("key").isNotNull())

    def _copies(self, span: OffsetRange, overwritten: DataFrame) -> DataFrame:
        coordinates = overwritten.select(*_PARTITION, F.col("theirs.offset").alias("offset"))
        copied = single_header(COPIED, F.col("offset").cast("string"))
        headers = F.when(F.col("headers").isNull(), copied).otherwise(F.concat("headers", copied))
        records = self._read(span).join(F.broadcast(coordinates), COORDINATES, "left_semi")
        return records.select(*_PARTITION, "key", "value", headers.alias("headers"))

    def _write(self, records: DataFrame) -> None:
        records.write.format("kafka").options(**spark_options(self._properties)).save()


def _last_records(records: DataFrame, erased: DataFrame) -> DataFrame:
    """Returns per key its `last` record, and the last of `theirs`: records not written by an erasure. Each is a struct
    of `offset`, the offset of the record that its value is from (`told`), whether it `holds` a value, and the `request`
    that erases it."""
    is_copy, is_original = has_header(COPIED), ~has_header(COPIED) & ~has_header(ERASED)
    copied_offset = F.element_at(F.filter("headers", lambda header: header["key"] == COPIED), 1)["value"]
    value_offset = F.when(is_copy, copied_offset.cast("string").cast("long")).when(is_original, F.col("offset"))
    has_value = F.col("value").isNotNull().alias("holds")
    records_read = records.select(
        *COORDINATES, "timestamp", "key", is_original.alias("genuine"), value_offset.alias("told"), has_value
    )
    with_requests = records_read.join(erased, [*COORDINATES, "timestamp"], "left")
    record = F.struct("offset", "told", "holds", "request")
    return with_requests.groupBy(*_PARTITION, "key").agg(
        F.max_by(record, "offset").alias("last"),
        F.max_by(record, F.when(F.col("genuine"), F.col("offset"))).alias("theirs"),
    )


def _needs_tombstone() -> Column:
    """Returns True if the last record is an erased one."""
    return F.col("last.holds") & F.col("last.request").isNotNull()


def _needs_copy() -> Column:
    """Returns True if their last record is not erased, and the topic's last value is another one. Their earlier records
    were superseded by the erased one."""
    is_current = F.coalesce(F.col("last.told") == F.col("theirs.offset"), F.lit(False))
    return F.coalesce(F.col("theirs.holds"), F.lit(False)) & F.col("theirs.request").isNull() & ~is_current
