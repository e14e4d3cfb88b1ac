"""Sends signals to a connector, and reads its notifications, over topics of Kafka."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from ingest.errors import SourceRefused, Unreachable
from ingest.sources.kafka_properties import librdkafka_properties

_TIMEOUT_SECONDS = 30.0
_LINGER_MILLIS = 100
"""How long the first record waits for the others, so that all are in one batch."""


def create_topics(properties: Mapping[str, str], topics: Mapping[str, Mapping[str, str]]) -> None:
    """Creates the topics that are absent, with one partition and their settings under Kafka's own names.

    Raises SourceRefused where the cluster refuses it."""
    client_settings: dict[str, Any] = {**librdkafka_properties(properties)}
    admin = AdminClient(client_settings)
    new = [NewTopic(topic, num_partitions=1, config=dict(settings)) for topic, settings in topics.items()]
    for topic, created in admin.create_topics(new, request_timeout=_TIMEOUT_SECONDS).items():
        try:
            created.result()
        except KafkaException as failure:
            error = failure.args[0]
            if error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                continue
            if error.retriable() or error.code() == KafkaError._TIMED_OUT:
                raise _unreachable(topic) from None
            raise SourceRefused(
                f"Kafka refuses to create topic {topic}: {error.str()}",
                "create it with one partition, or grant the user Create on the cluster",
            ) from None


def send(properties: Mapping[str, str], topic: str, key: str | None, *values: Mapping[str, Any]) -> None:
    """Writes JSON records, which consumers get at once, and waits until all replicas in sync have them.

    Raises SourceRefused if the user may not write there, Unreachable if no broker confirms it."""
    failures: list[KafkaError | None] = []
    own: dict[str, Any] = {"acks": "all", "enable.idempotence": True, "linger.ms": _LINGER_MILLIS}
    producer = Producer(librdkafka_properties(properties) | own)
    for value in values:
        text = json.dumps(value, ensure_ascii=False)
        producer.produce(topic, text, key, on_delivery=lambda error, _: failures.append(error))
    if producer.flush(_TIMEOUT_SECONDS) or len(failures) < len(values):
        raise _unreachable(topic)
    error = next((failure for failure in failures if failure is not None), None)
    if error is None:
        return
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        raise SourceRefused(f"the user may not write to topic {topic}", "grant Write on it")
    raise _unreachable(topic)


class TopicTail:
    """Reads the records that are written to a topic from now on. A context manager."""

    def __init__(self, properties: Mapping[str, str], topic: str) -> None:
        own: dict[str, Any] = {"group.id": f"ingest-{uuid.uuid4()}", "enable.auto.commit": False}
        self._topic = topic
        self._consumer = Consumer(librdkafka_properties(properties) | own)

    def __enter__(self) -> TopicTail:
        """Fixes the offsets from which records are read."""
        try:
            found = self._consumer.list_topics(self._topic, timeout=_TIMEOUT_SECONDS).topics[self._topic]
            places = [TopicPartition(self._topic, partition) for partition in found.partitions]
            for place in places:
                place.offset = self._consumer.get_watermark_offsets(place, timeout=_TIMEOUT_SECONDS)[1]
        except KafkaException:
            self._consumer.close()
            raise _unreachable(self._topic) from None
        self._consumer.assign(places)
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def next(self, seconds: float) -> bytes | None:
        """Returns the value of the next record; None if none comes in time."""
        message: Message | None = self._consumer.poll(seconds)
        if message is None:
            return None
        if (error := message.error()) is None:
            return message.value()
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise SourceRefused(f"the user may not read topic {self._topic}", "grant Read on it")
        return None


def _unreachable(topic: str) -> Unreachable:
    return Unreachable(
        f"Kafka did not answer within {_TIMEOUT_SECONDS:g} s about topic {topic}",
        "check that its brokers run and can be reached, then run the same command again",
    )
