"""Reads the records of a small topic one by one, such as a topic of erasure requests. Spark reads changelogs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from ingest.errors import SourceRefused, Unreachable
from ingest.sources.kafka_admin import KafkaAdmin
from ingest.sources.kafka_properties import librdkafka_properties

_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class TopicRecord:
    """A record. `id`: unique, also among records of a later topic of the same name."""

    id: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None

    def __repr__(self) -> str:
        return f"TopicRecord({self.partition}, {self.offset})"


def read_records(properties: Mapping[str, str], topic: str, timeout: float = 30.0) -> Iterator[TopicRecord]:
    """Yields the records that `topic` holds now, those of a partition in offset order. `properties` are Kafka client
    properties under their Java names. No offsets are committed.

    Raises Unreachable after `timeout` seconds without an answer, and SourceRefused where the user may not read it."""
    admin = KafkaAdmin(properties, timeout=min(timeout, 10.0))
    begins, ends = admin.beginning_offsets([topic])[topic], admin.end_offsets([topic])[topic]
    id_ = admin.topic_ids([topic]).get(topic, topic)
    wanted = [TopicPartition(topic, p, begin) for p, begin in begins.items() if begin < ends[p]]
    if not wanted:
        return
    consumer_settings: dict[str, Any] = {
        "group.id": "ingest",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = Consumer(librdkafka_properties(properties) | consumer_settings)
    try:
        consumer.assign(wanted)
        yield from _read(consumer, id_, {place.partition: ends[place.partition] for place in wanted}, timeout)
    finally:
        consumer.close()


def _read(consumer: Consumer, topic_id: str, ends: dict[int, int], timeout: float) -> Iterator[TopicRecord]:
    left, deadline = set(ends), time.monotonic() + timeout
    while left:
        message = consumer.poll(_POLL_SECONDS)
        if message is None:
            if time.monotonic() > deadline:
                raise Unreachable("a topic's records did not come in time", "run the same command again")
            continue
        deadline = time.monotonic() + timeout
        partition, offset, error = message.partition(), message.offset(), message.error()
        assert partition is not None
        if error is not None:
            if error.code() != KafkaError._PARTITION_EOF:
                raise _error_of(error)
            left.discard(partition)
            continue
        assert offset is not None
        if offset < ends[partition]:
            yield TopicRecord(f"{topic_id}/{partition}/{offset}", partition, offset, message.key(), message.value())
        if offset + 1 >= ends[partition]:
            left.discard(partition)


def _error_of(error: KafkaError) -> Exception:
    if error.retriable():
        return Unreachable(f"a topic's records can't be read: {error.str()}", "run the same command again")
    return SourceRefused(f"a topic's records can't be read: {error.str()}", "let the user read the topic")
