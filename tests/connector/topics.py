"""Waits for records that a connector writes."""

from __future__ import annotations

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from ingest.errors import SourceRefused
from ingest.sources.kafka_admin import KafkaAdmin
from ingest.stack import Stack


def await_ends(stack: Stack, ends: dict[str, int]) -> None:
    """Returns when each topic, of one partition, ends at this offset."""
    admin = KafkaAdmin({"bootstrap.servers": stack.kafka.bootstrap_servers})
    for attempt in waiting():
        with attempt:
            found = admin.end_offsets(admin.topics(list(ends)))
            assert found == {topic: {0: end} for topic, end in ends.items()}


def waiting(seconds: float = 90) -> Retrying:
    return Retrying(
        retry=retry_if_exception_type((AssertionError, SourceRefused)),  # refused: no topic yet
        stop=stop_after_delay(seconds),
        wait=wait_fixed(0.5),
        reraise=True,
    )
