"""Kafka topics as a source: the admin client finds the ranges of offsets, Spark's Kafka reader reads the records."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.changelog.envelope import RECORD
from ingest.jvm.projection import Projection
from ingest.sources.contract import OffsetRange, Offsets
from ingest.sources.kafka_admin import KafkaAdmin
from ingest.sources.kafka_properties import spark_options
from ingest.sources.offset_ranges import extended, limited, messages_first

_RECORDS_A_TASK = 10_000
"""The least size of a task: smaller ranges of a topic partition are not split."""

_POLLS = {"max.poll.records": "10000"}
"""Spark requests both end offsets of a partition at each poll, which takes a tenth of the read time with the default of
500 records. More records per poll need no more memory, since the client has fetched them already."""

_MESSAGES = "message"
"""The last part of the name of Debezium's topic of messages, below the connector's `topic.prefix`."""
_PARTS_OF_A_TABLE = 3
"""Parts of a topic's name: prefix, schema and table."""

Start = Literal["earliest", "latest"] | Mapping[str, Mapping[int, int]]


class KafkaSource:
    """Topics by list or by pattern; a topic that appears later is read from its beginning.

    With them comes the connector's topic of messages, if there is one. Its end is fetched last and its records are read
    first, so that a range which holds an event holds the messages of the source's triggers from before it."""

    def __init__(
        self,
        properties: Mapping[str, str],
        topics: Sequence[str] | None,
        pattern: str | None,
        start: Start = "earliest",
        until: Offsets | None = None,
        topic_prefix: str | None = None,
        record_topic: str | None = None,
    ) -> None:
        """`until`: fixed end offsets; by default those of the topics. `topic_prefix`: the connector's; by default that
        of topics `PREFIX.SCHEMA.TABLE`. `record_topic`: a topic of records about reads of the other topics; it is read
        as well, if it is there, and never before what its records are about."""
        self._properties = dict(properties)
        self._admin = KafkaAdmin(properties)
        self._topics = topics
        self._pattern = pattern
        self._start = start
        self._last = self._until = until
        self._topic_prefix = topic_prefix
        self._ids: dict[str, str] = {}
        self._record_topic = record_topic
        self._group = _new_group()
        self.ends: Offsets = {}
        """The end offsets of the last call of `pending`."""

    def pin_end(self) -> None:
        self._until = self._last or self._end_offsets()

    def pending(self, captured: Offsets, limit: int) -> OffsetRange | None:
        ends = self._until
        if ends is None:
            ends = self._end_offsets()
        self.ends = ends
        topics = sorted(ends)
        starts: Offsets = {}
        unknown = [t for t in topics if any(p not in captured.get(t, {}) for p in ends[t])]
        first = self._first(unknown, bool(captured)) if unknown else {}
        for topic, partitions in ends.items():
            for partition in partitions:
                known = captured.get(topic, {}).get(partition)
                starts.setdefault(topic, {})[partition] = first[topic][partition] if known is None else known
        records = {topic: partitions for topic, partitions in ends.items() if topic == self._record_topic}
        others = {topic: partitions for topic, partitions in ends.items() if topic not in records}
        span = messages_first(starts, others, message_topics(others, self._topic_prefix), limit)
        if span is None or not span.behind:
            span = extended(span, limited(starts, records, limit))
        return None if span is None else replace(span, topic_ids=self._seen(self._admin.topic_ids(span.end)))

    def _end_offsets(self) -> Offsets:
        topics = self._admin.topics(self._topics, self._pattern)
        # First: what its records are about is in the other topics by then.
        records = [] if self._record_topic is None else self._admin.present([self._record_topic])
        of_records = self._admin.end_offsets(records) if records else {}
        messages = self._admin.present(message_topics(topics, self._topic_prefix))
        ends = self._admin.end_offsets([topic for topic in topics if topic not in messages])
        ends |= of_records
        return ends | self._admin.end_offsets(messages) if messages else ends

    def _seen(self, ids: Mapping[str, str]) -> Mapping[str, str]:
        if any(self._ids.get(topic, id_) != id_ for topic, id_ in ids.items()):
            # A recreated topic needs a new group: the old one's cached consumer holds prefetched records of the old
            # topic.
            self._group = _new_group()
        self._ids |= ids
        return ids

    def _first(self, topics: Sequence[str], later: bool) -> Offsets:
        """Returns the first offsets of new partitions. One that appears `later`, after the first capture, is read from
        its beginning."""
        begin = self._admin.beginning_offsets(topics)
        if self._start == "earliest" or later:
            return begin
        # A definition may be older than the first event that is read.
        messages = {topic: begin[topic] for topic in message_topics(topics, self._topic_prefix) if topic in begin}
        if self._start == "latest":
            return self._admin.end_offsets(topics) | messages
        chosen = self._start
        return {
            topic: {p: int(chosen.get(topic, {}).get(p, offset)) for p, offset in partitions.items()}
            for topic, partitions in begin.items()
        }

    def read(self, spark: SparkSession, span: OffsetRange) -> DataFrame:
        assigned = {topic: sorted(partitions) for topic, partitions in span.end.items()}
        reader = spark.read.format("kafka").options(**spark_options(_POLLS | self._group | self._properties))
        found = (
            reader.option("assign", json.dumps(assigned))
            .option("startingOffsets", json.dumps(span.start))
            .option("endingOffsets", json.dumps(span.end))
            .option("includeHeaders", "true")
            .option("failOnDataLoss", "true")
            .option("minPartitions", str(_tasks(span, spark.sparkContext.defaultParallelism)))
            .load()
        )
        return _records().of(found)


def message_topics(topics: Iterable[str], topic_prefix: str | None) -> set[str]:
    """Returns the names of the topics to which the connector of these topics writes messages. `topic_prefix`: the
    connector's; by default that of topics `PREFIX.SCHEMA.TABLE`."""
    if topic_prefix is not None:
        return {f"{topic_prefix}.{_MESSAGES}"}
    parts = (topic.split(".") for topic in topics)
    return {f"{names[0]}.{_MESSAGES}" for names in parts if len(names) == _PARTS_OF_A_TABLE or names[1:] == [_MESSAGES]}


@cache
def _records() -> Projection:
    """Returns the projection of the reader's columns to `RECORD`; cached, since building it is a quarter of the
    planning time of a read."""
    return Projection([F.col(f.name).cast(f.dataType) for f in RECORD.fields])


def _new_group() -> dict[str, str]:
    """Returns the property of a new consumer group.

    Spark caches consumers per group, with their prefetched records; with the default, a new group per query, they stay
    cached for minutes without being used again. The broker registers no group: nothing is subscribed or committed."""
    return {"group.id": f"ingest-{uuid.uuid4()}"}


def _tasks(span: OffsetRange, at_once: int) -> int:
    """Returns the number of tasks: a long range is split over all cores, even if its topics have few partitions."""
    return max(1, min(at_once, span.size // _RECORDS_A_TASK))
