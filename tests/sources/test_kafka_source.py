"""Ranges of offsets from a real broker: every read returns the same records, with one cached consumer."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from pyspark.sql import SparkSession

from ingest.config import Pipeline
from ingest.errors import IngestError, SourceRefused, Unreachable
from ingest.failures.conversion import to_ingest_error
from ingest.sources.contract import OffsetRange
from ingest.sources.kafka import KafkaSource
from ingest.sources.kafka_properties import spark_options
from ingest.stack import Stack

pytestmark = pytest.mark.integration
_RECORDS = 300


@pytest.fixture(scope="module")
def servers(stack: Stack) -> str:
    return stack.kafka.bootstrap_servers


def _make(servers: str, topic: str, values: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
    producer = Producer({"bootstrap.servers": servers})
    for number in range(_RECORDS):
        producer.produce(topic, f"{values}{number}".encode(), partition=0)
    assert producer.flush(60) == 0


def _values(spark: SparkSession, source: KafkaSource, span: OffsetRange) -> list[str]:
    rows = source.read(spark, span).orderBy("offset").collect()
    return [bytes(row.value).decode() for row in rows]


def _consumers(spark: SparkSession) -> set[str]:
    """Returns the names of the consumers in the JVM, from its MBeans."""
    jvm: Any = spark._jvm
    gateway: Any = spark._sc._gateway
    server = jvm.java.lang.management.ManagementFactory.getPlatformMBeanServer()
    name = jvm.javax.management.ObjectName("kafka.consumer:type=app-info,*")
    # The class is not exported by its module, its interface is.
    types = gateway.new_array(jvm.java.lang.Class, 2)
    types[0], types[1] = name.getClass(), jvm.java.lang.Class.forName("javax.management.QueryExp")
    arguments = gateway.new_array(jvm.java.lang.Object, 2)
    arguments[0] = name
    asked = jvm.java.lang.Class.forName("javax.management.MBeanServer").getMethod("queryNames", types)
    names = (found.getKeyProperty("id") for found in asked.invoke(server, arguments))
    return {str(name) for name in names if name is not None}


def test_batches_share_one_consumer(spark: SparkSession, servers: str) -> None:
    """Consumers of other tests don't count: Spark closes idle ones at any time."""
    topic = f"source.{uuid4().hex[:8]}"
    _make(servers, topic, "")
    source = KafkaSource({"bootstrap.servers": servers}, [topic], None)
    others = _consumers(spark)
    own: set[str] = set()
    captured: dict[str, dict[int, int]] = {}
    for begin in range(0, _RECORDS, 50):
        span = source.pending(captured, 50)
        assert span is not None
        assert _values(spark, source, span) == [str(n) for n in range(begin, begin + 50)]
        captured = span.end
        own |= _consumers(spark) - others
    again = OffsetRange({topic: {0: 70}}, {topic: {0: 140}})
    assert _values(spark, source, again) == [str(n) for n in range(70, 140)]
    assert source.pending(captured, 50) is None
    own |= _consumers(spark) - others
    assert len(own) == 1, "the first batch's consumer serves all"


def test_records_about_reads_come_after_what_they_are_about(servers: str) -> None:
    topic, records = (f"source.{uuid4().hex[:8]}" for _ in range(2))
    _make(servers, topic, "")
    source = KafkaSource({"bootstrap.servers": servers}, [topic], None, record_topic=records)
    first = source.pending({}, 100)
    assert first is not None
    assert first.end == {topic: {0: 100}}, "the topic of records needn't be there"
    _make(servers, records, "")
    second = source.pending(first.end, 100)
    assert second is not None
    assert second.end.keys() == {topic}
    rest = source.pending(first.end, 10_000)
    assert rest is not None
    assert rest.end == {topic: {0: _RECORDS}, records: {0: _RECORDS}}
    last = source.pending({topic: {0: _RECORDS}}, 100)
    assert last is not None
    assert last.end == {records: {0: 100}}


def test_records_prefetched_from_a_recreated_topic_are_dropped(spark: SparkSession, servers: str) -> None:
    topic = f"source.{uuid4().hex[:8]}"
    _make(servers, topic, "old ")
    source = KafkaSource({"bootstrap.servers": servers}, [topic], None)
    span = source.pending({}, 10)
    assert span is not None
    assert _values(spark, source, span)[-1] == "old 9"
    admin = AdminClient({"bootstrap.servers": servers})
    admin.delete_topics([topic])[topic].result()
    _make(servers, topic, "new ")
    span = source.pending(span.end, 10)
    assert span is not None
    assert _values(spark, source, span) == [f"new {n}" for n in range(10, 20)]


def failure(what: Callable[[], object], servers: str) -> IngestError | None:
    kafka = {"kafka": {"bootstrap.servers": servers}, "topics": ["t"]}
    pipeline = Pipeline.model_validate({"name": "p", "source": kafka, "lakehouse": "/nowhere"})
    with pytest.raises(Exception) as failed:
        what()
    return to_ingest_error(failed.value, pipeline)


def test_deleted_offsets_are_refused(spark: SparkSession, servers: str) -> None:
    topic = f"source.{uuid4().hex[:8]}"
    _make(servers, topic, "")
    source = KafkaSource({"bootstrap.servers": servers}, [topic], None)
    span = source.pending({}, _RECORDS)
    assert span is not None
    admin = AdminClient({"bootstrap.servers": servers})
    for done in admin.delete_records([TopicPartition(topic, 0, 100)]).values():
        done.result(30)
    error = failure(lambda: _values(spark, source, span), servers)
    assert isinstance(error, SourceRefused)
    assert f"Kafka at {servers} no longer holds offsets" in error.problem


def test_records_that_time_out_are_retried(spark: SparkSession, servers: str) -> None:
    """The range ends after the topic does, so the reader waits for missing records, as for a slow broker."""
    topic = f"source.{uuid4().hex[:8]}"
    _make(servers, topic, "")
    reader = spark.read.format("kafka").options(**spark_options({"bootstrap.servers": servers}))
    reader = reader.option("assign", json.dumps({topic: [0]})).option("kafkaConsumer.pollTimeoutMs", "1000")
    span = {"startingOffsets": {topic: {0: 290}}, "endingOffsets": {topic: {0: 310}}}
    late = reader.options(**{name: json.dumps(offsets) for name, offsets in span.items()})
    error = failure(lambda: late.load().collect(), servers)
    assert isinstance(error, Unreachable | SourceRefused), error
    assert servers in error.problem


@pytest.mark.parametrize(
    ("topics", "pattern", "prefix"),
    [(["P.public.t"], None, None), (None, r"P\.public\..*", None), (None, r"P\..*", None), (["P.public.t"], None, "P")],
)
def test_topic_of_messages_comes_with_the_tables(
    servers: str, topics: list[str] | None, pattern: str | None, prefix: str | None
) -> None:
    name = f"m{uuid4().hex[:8]}"
    for topic in (f"{name}.public.t", f"{name}.message", f"{name}.public.message.x"):
        _make(servers, topic, "v")
    named = [topic.replace("P", name) for topic in topics] if topics else None
    matching = pattern.replace("P", name) if pattern else None
    source = KafkaSource({"bootstrap.servers": servers}, named, matching, "latest", topic_prefix=prefix and name)
    first = source.pending({}, 10)
    assert first is not None, "messages are read from their beginning"
    assert (first.start, first.end) == ({f"{name}.message": {0: 0}}, {f"{name}.message": {0: 10}})
    assert source.ends[f"{name}.message"] == {0: _RECORDS}


def test_table_without_messages_is_read_alone(servers: str) -> None:
    name = f"m{uuid4().hex[:8]}"
    _make(servers, f"{name}.public.t", "v")
    span = KafkaSource({"bootstrap.servers": servers}, [f"{name}.public.t"], None).pending({}, 1000)
    assert span is not None
    assert [*span.end] == [f"{name}.public.t"]
