"""Erasure requests from a topic: each is stored once, and a malformed record holds up no other."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from ingest.cli import app
from ingest.cli.erasure import erase as command
from ingest.stack import Stack
from ingest.suppression.key_file import read_keys
from ingest.suppression.ledger import REQUESTED, Ledger, LedgerEntry
from tests.erasure.people import MEMBERS, insured

pytestmark = [pytest.mark.integration, pytest.mark.long]
TOPIC, PEOPLE = "erasure-requests", "erasure-people"


def produce(stack: Stack, *values: Any) -> None:
    producer = Producer({"bootstrap.servers": stack.kafka.bootstrap_servers})
    for value in values:
        text = json.dumps(value) if isinstance(value, dict) else value
        producer.produce(TOPIC, key="k", value=text)
    assert producer.flush(60) == 0


def test_requests_of_a_topic_are_erased_once(
    stack: Stack, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "running", lambda *_: nullcontext(spark))
    servers = stack.kafka.bootstrap_servers
    source_settings: dict[str, Any] = {"kafka": {"bootstrap.servers": servers}, "topics": [PEOPLE]}
    privacy = {"key_file": str(tmp_path / "ledger.key"), "keep_old_files_hours": 0, "request_topic": TOPIC}
    pipeline = insured(tmp_path, source=source_settings, privacy=privacy)
    assert pipeline.privacy is not None
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(PEOPLE, value=b"x")
    producer.flush(60)

    def erase() -> Result:
        return CliRunner().invoke(app, ["erase", str(tmp_path / "insured.yaml"), "--json"])

    def requests() -> list[LedgerEntry]:
        ledger = Ledger(spark, pipeline.layout.ledger, pipeline.name)
        assert list(ledger.verify()) == []
        return [e for e in ledger.entries() if e.kind == REQUESTED]

    produce(stack, {"subject": "member:42", "reason": "a letter"}, None, {"subject": "member:43"})
    first = json.loads(erase().stdout)
    assert (first["asked_in_topic"], first["unreadable_requests"]) == (2, [])
    assert f"topic {TOPIC}" in [beyond["place"] for beyond in first["out_of_reach"]]
    keys = read_keys(pipeline.privacy.key_file)
    assert [(e.key_hash, e.reason) for e in requests()] == [
        (keys.hash(MEMBERS, "42"), "a letter"),
        (keys.hash(MEMBERS, "43"), None),
    ]
    assert json.loads(erase().stdout)["asked_in_topic"] == 0

    produce(stack, "Anna wants to go", {"subject": "pet:7"}, {"subject": "member:44"})
    refused = erase()
    assert [u["offset"] for u in json.loads(refused.stdout)["unreadable_requests"]] == [3, 4]
    assert f"2 records of topic {TOPIC} are no requests; the first, partition 0, offset 3" in str(refused.exception)
    assert "Anna" not in refused.output + str(refused.exception)
    assert [e.key_hash for e in requests()][2:] == [keys.hash(MEMBERS, "44")], "other requests are not delayed"
    admin = AdminClient({"bootstrap.servers": servers})
    for answer in admin.delete_records([TopicPartition(TOPIC, 0, 5)]).values():
        answer.result()
    assert erase().exit_code == 0
    assert len(requests()) == 3
