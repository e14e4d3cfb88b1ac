"""The records of an erased key in a compacted topic, and their removal by `ingest erase`."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
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
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

from ingest.cli import app
from ingest.cli.erasure import erase as command
from ingest.config import load
from ingest.erasure.certifying import erasure_of
from ingest.erasure.compacted_topics import CompactedTopics
from ingest.erasure.places import TOPICS
from ingest.erasure.uncovered_locations import FAST_COMPACTION
from ingest.errors import ProofFailed
from ingest.lakehouse.accounts import Accounts
from ingest.pipeline.composition import Run, bronze_of
from ingest.proof.scan import Folder, SearchTerm, scan_places
from ingest.quality.accounting import audit
from ingest.sources.kafka_records import read_records
from ingest.spark.session import SHORT_LIVED
from ingest.stack import Stack
from ingest.testing import Event
from tests.erasure.people import CLAIMS, MEMBERS, PHOTOS, TABLES, TableEvent, insured, records, topic
from tests.erasure.test_killed_erasure import erase
from tests.suppression.test_suppression import rows

pytestmark = [pytest.mark.integration, pytest.mark.long]
EMAIL = "zora.quandt@example.org"
SECONDS = 300


def parts_holding(log: Path, text: str = EMAIL) -> list[str]:
    """Returns the parts of the topic's segments that hold a value of the subject."""
    (found,) = scan_places([Folder(log)], (SearchTerm("text", text),))
    return sorted({f.part for f in found.findings.values()})


def roll_segments_fast(admin: AdminClient, topic: str) -> None:
    entries = [ConfigEntry(n, v, incremental_operation=AlterConfigOpType.SET) for n, v in FAST_COMPACTION.items()]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result()


def wait_until_gone(log: Path, text: str, roll: Callable[[], None]) -> list[str]:
    """Waits until `text` is gone and returns what is left. `roll` writes a record: one more record rolls a segment that
    is old enough, once the broker applies its new settings."""
    deadline = time.monotonic() + SECONDS
    while found := parts_holding(log, text):
        if time.monotonic() > deadline:
            break
        roll()
        time.sleep(1)
    return found


def test_null_tombstone_removes_a_record_when_its_segment_rolls(stack: Stack) -> None:
    servers: dict[str, Any] = {"bootstrap.servers": stack.kafka.bootstrap_servers}
    name, admin, producer = f"compacted.{uuid4().hex}", AdminClient(servers), Producer(servers)
    admin.create_topics([NewTopic(name, 1, 1, config={"cleanup.policy": "compact"})])[name].result()
    log = stack.kafka.data / f"{name}-0"

    def send(key: str, value: str | None) -> None:
        producer.produce(name, value, key)
        assert producer.flush(60) == 0

    for n in range(3):
        send("42", json.dumps({"after": {"id": 42, "email": EMAIL, "n": n}}))
    send("43", json.dumps({"after": {"id": 43, "email": "ben@example.org"}}))
    assert parts_holding(log)
    send("42", None)
    time.sleep(3)
    assert parts_holding(log), "the tombstone alone removes nothing: its segment is still open"
    roll_segments_fast(admin, name)
    assert wait_until_gone(log, EMAIL, lambda: send("44", json.dumps({"after": {"id": 44}}))) == []
    assert any(b"ben@example.org" in part.read_bytes() for part in log.glob("*.log")), "others stay"
    admin.delete_topics([name])[name].result()


ANNA, BEN = 481516, 481517
TEXT = "broke her left wrist in Vaduz"
STORY = [
    TableEvent(table, Event(op, 0, 10 * n, key, image))  # type: ignore[arg-type]
    for n, (table, op, key, image) in enumerate(
        [
            (MEMBERS, "c", ANNA, {"name": "Anna"}),
            (MEMBERS, "c", BEN, {"name": "Ben"}),
            (MEMBERS, "u", ANNA, {"name": "Anna B."}),
            (CLAIMS, "c", 60, {"member_id": ANNA, "text": TEXT}),
            (CLAIMS, "c", 61, {"member_id": BEN, "text": "theft"}),
            (CLAIMS, "x", 62, {"member_id": ANNA, "text": TEXT}),  # of an unknown op: it is quarantined
            (CLAIMS, "c", 62, {"member_id": ANNA, "text": TEXT}),
            (CLAIMS, "d", 62, {}),  # of a connector that writes no null tombstones
            (CLAIMS, "c", 63, {"member_id": ANNA, "text": TEXT}),
            (CLAIMS, "d", 63, {}),
            (CLAIMS, "null", 63, {}),
            (PHOTOS, "c", 70, {"claim_id": 60, "text": TEXT}),
        ],
        1,
    )
]
AGAIN = TableEvent(MEMBERS, Event("c", 0, 900, ANNA, {"name": "Anna again"}))


class Died(Exception):
    """Simulates the death of the process."""


class Topics:
    """The topics of the three tables; that of photos is not compacted."""

    def __init__(self, servers: str) -> None:
        self.servers: dict[str, Any] = {"bootstrap.servers": servers}
        self.admin, self._producer = AdminClient(self.servers), Producer(self.servers)
        kinds = {topic(t): {"cleanup.policy": "delete" if t == PHOTOS else "compact"} for t in TABLES}
        made = self.admin.create_topics([NewTopic(name, 1, 1, config=kind) for name, kind in kinds.items()])
        for answer in made.values():
            answer.result()

    def send(self, events: list[TableEvent]) -> None:
        for record in records(events, 0):
            value = None if record["value"] is None else json.dumps(record["value"])
            self._producer.produce(record["topic"], value, json.dumps(record["key"]), partition=0)
        assert self._producer.flush(60) == 0

    def last_values(self, table: str) -> dict[int, Any]:
        """Returns key → its last value in the topic; None for a tombstone."""
        found = {}
        for record in read_records(self.servers, topic(table)):
            assert record.key is not None
            found[json.loads(record.key)["id"]] = None if record.value is None else json.loads(record.value)["after"]
        return found

    def delete(self) -> None:
        for answer in self.admin.delete_topics([*map(topic, TABLES)]).values():
            answer.result()


def test_erasure_writes_null_tombstones_and_keeps_concurrent_records(
    stack: Stack, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "running", lambda *_: nullcontext(spark))
    topics = Topics(stack.kafka.bootstrap_servers)
    source = {"kafka": topics.servers, "topics": [*map(topic, TABLES)]}
    privacy = {"key_file": str(tmp_path / "ledger.key"), "keep_old_files_hours": 0}

    def erased(*more: str) -> dict[str, Any]:
        result = CliRunner().invoke(app, ["erase", str(tmp_path / "insured.yaml"), "--json", *more])
        assert result.exit_code == 0, result.output
        summary: dict[str, Any] = json.loads(result.stdout)
        return summary

    def merge() -> None:
        run = Run(spark, load(str(tmp_path / "insured.yaml"), {}), ("capture", "merge"))
        while not run.step().idle:
            pass

    insured(tmp_path, source=source, privacy=privacy)
    topics.send(STORY)
    merge()
    (request,) = erased("--subject", f"member:{ANNA}")["requests"]
    assert topics.last_values(CLAIMS)[60]["text"] == TEXT, "no other key gets a tombstone"

    pipeline = insured(tmp_path, source=source, privacy=privacy | {"tombstones_in_topics": True}, spark=SHORT_LIVED)
    with pytest.raises(ProofFailed, match="nothing was removed yet from compacted topics"):
        erasure_of(spark, pipeline, request)
    write = CompactedTopics._write

    def dying_beside_another(self: CompactedTopics, wanted: DataFrame) -> None:
        topics.send([AGAIN])
        write(self, wanted)
        raise Died

    with monkeypatch.context() as patched:
        patched.setattr(CompactedTopics, "_write", dying_beside_another)
        assert isinstance(CliRunner().invoke(app, ["erase", str(tmp_path / "insured.yaml")]).exception, Died)
    assert topics.last_values(MEMBERS)[ANNA] is None, "records written meanwhile are covered"
    assert topics.last_values(CLAIMS)[60] is None
    killed = erase(tmp_path / "insured.yaml", TOPICS)
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]
    assert erased()["removed"]["compacted topics"] == {"tombstones": 0}
    assert erasure_of(spark, pipeline, request).request == request
    assert topics.last_values(MEMBERS) == {
        ANNA: {"id": ANNA, "name": "Anna again"},
        BEN: {"id": BEN, "name": "Ben"},
    }
    assert topics.last_values(CLAIMS) == {
        60: None,
        61: {"id": 61, "member_id": BEN, "text": "theft"},
        62: None,
        63: None,
    }
    assert topics.last_values(PHOTOS)[70]["text"] == TEXT, "retention removes records of a topic that is not compacted"
    assert erased()["removed"]["compacted topics"] == {"tombstones": 0}

    merge()
    assert {n: row["name"] for n, row in rows(spark, pipeline, MEMBERS).items()} == {ANNA: "Anna again", BEN: "Ben"}
    captured = bronze_of(spark, pipeline).rows().where("value is null and key is not null")
    assert captured.isEmpty(), "a tombstone of an erasure does not restore the key"
    accounts = Accounts(spark, pipeline.layout.accounts, pipeline.name)
    assert audit(bronze_of(spark, pipeline).rows(), accounts.rows()).problems == []
    roll_segments_fast(topics.admin, topic(CLAIMS))
    hail = replace(AGAIN, table=CLAIMS, event=Event("c", 0, 990, 64, {"member_id": BEN, "text": "hail"}))
    assert wait_until_gone(stack.kafka.data / f"{topic(CLAIMS)}-0", TEXT, lambda: topics.send([hail])) == []
    topics.delete()
