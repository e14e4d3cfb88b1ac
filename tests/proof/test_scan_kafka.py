"""The scanner finds records in the log segments of a real broker, with every compression."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from ingest.proof.forms.encodings import IN_COLUMN
from ingest.proof.scan.report import PlaceScan
from ingest.stack import Stack
from tests.proof.subject import EMAIL, NUMBER, scan, unread

pytestmark = pytest.mark.integration
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COMPRESSED_BY = ("producer", "broker")
LINE = json.dumps({"id": NUMBER, "mail": EMAIL})


def topic(by: str, codec: str) -> str:
    return f"scan.{by}.{codec}"


@pytest.fixture(scope="module")
def scanned(stack: Stack) -> PlaceScan:
    kafka: dict[str, Any] = {"bootstrap.servers": stack.kafka.bootstrap_servers}
    admin = AdminClient(kafka)
    topics = []
    for codec in CODECS:
        topics.append(NewTopic(topic("producer", codec), 1, config={"compression.type": "producer"}))
        compression = "uncompressed" if codec == "none" else codec
        topics.append(NewTopic(topic("broker", codec), 1, config={"compression.type": compression}))
    for made in admin.create_topics(topics).values():
        made.result(30)
    for codec in CODECS:
        for by in COMPRESSED_BY:
            # Records for the broker to compress are sent in another codec.
            sent = codec if by == "producer" else "gzip" if codec != "gzip" else "zstd"
            producer = Producer({**kafka, "compression.type": sent, "linger.ms": 500})
            for i in range(300):
                producer.produce(topic(by, codec), json.dumps({"id": i, "mail": f"{i}@mail.example"}))
                if i == 150:
                    producer.produce(topic(by, codec), LINE, key=LINE)
            assert producer.flush(60) == 0
    return scan(stack.kafka.data)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("by", COMPRESSED_BY)
def test_records_are_found_in_every_codec(by: str, codec: str, scanned: PlaceScan) -> None:
    part = "its bytes" if codec == "none" else f"records compressed by {codec}"
    ours = [f for f in scanned.findings.values() if f.file.startswith(f"{topic(by, codec)}-0/")]
    there = {(f.part, f.needle, f.form) for f in ours}
    assert (part, "email", "JSON escapes") in there
    assert (part, "member", IN_COLUMN) in there


def test_other_files_of_the_broker_are_read(scanned: PlaceScan) -> None:
    kinds = {k.kind: k.files for k in scanned.read()}
    assert kinds["kafka segment"] >= 10
    ours = [entry for entry in unread(scanned) if entry[0].startswith("scan.")]
    assert ours == []


def test_topic_without_the_subject_is_clean(stack: Stack, scanned: PlaceScan, tmp_path: Path) -> None:
    producer = Producer({"bootstrap.servers": stack.kafka.bootstrap_servers, "compression.type": "zstd"})
    for i in range(300):
        producer.produce("scan.clean", json.dumps({"id": i, "mail": f"{i}@mail.example"}))
    assert producer.flush(60) == 0
    assert not any(f.file.startswith("scan.clean") for f in scan(stack.kafka.data).findings.values())
