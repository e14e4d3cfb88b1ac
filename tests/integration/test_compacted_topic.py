"""What stays of a deleted key in a compacted topic, and how it is made to go: as `ingest erase` tells it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from ingest.privacy.scan import Folder, Needle, scanned
from ingest.run.out_of_reach import HURRIED
from ingest.stack import Stack

pytestmark = pytest.mark.integration
EMAIL = "zora.quandt@example.org"
SECONDS = 90


def left(log: Path) -> list[str]:
    """The parts of the topic's segments in which something of her is."""
    (found,) = scanned([Folder(log)], (Needle("email", EMAIL),))
    return sorted({f.part for f in found.findings.values()})


def test_a_tombstone_takes_a_value_off_the_disk_once_its_segment_rolls(stack: Stack) -> None:
    servers = {"bootstrap.servers": stack.kafka.bootstrap_servers}
    topic, admin, producer = f"compacted.{uuid4().hex}", AdminClient(servers), Producer(servers)
    admin.create_topics([NewTopic(topic, 1, 1, config={"cleanup.policy": "compact"})])[topic].result()
    log = stack.kafka.data / f"{topic}-0"

    def send(key: str, value: str | None) -> None:
        producer.produce(topic, value, key)
        assert producer.flush(30) == 0

    for n in range(3):
        send("42", json.dumps({"after": {"id": 42, "email": EMAIL, "n": n}}))
    send("43", json.dumps({"after": {"id": 43, "email": "ben@example.org"}}))
    assert left(log)
    send("42", None)
    time.sleep(3)
    assert left(log), "the tombstone alone takes nothing away: its segment is the one that is written"
    told = [ConfigEntry(n, v, incremental_operation=AlterConfigOpType.SET) for n, v in HURRIED.items()]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=told)
    admin.incremental_alter_configs([resource])[resource].result()
    time.sleep(1.5)
    send("44", json.dumps({"after": {"id": 44}}))
    gone = Retrying(retry=retry_if_result(bool), stop=stop_after_delay(SECONDS), wait=wait_fixed(1))
    assert gone(left, log) == []
    assert any(b"ben@example.org" in part.read_bytes() for part in log.glob("*.log")), "others stay"
    admin.delete_topics([topic])[topic].result()
