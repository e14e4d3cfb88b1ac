"""A failing command prints one sentence and a remedy, and has an exit code; no stack trace."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from ingest.errors import EXIT_TRANSIENT, EXIT_USER
from ingest.lakehouse.quarantine import Quarantine
from ingest.names import Lakehouse
from ingest.stack import Stack

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[2]


def ingest(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from ingest.cli import main; main()", *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def pipeline(folder: Path, text: str) -> str:
    file = folder / "wrong.yaml"
    file.write_text(text + f"\nlakehouse: {folder}/lakehouse\n", encoding="utf-8")
    return str(file)


def assert_clear(completed: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    assert completed.returncode == code, completed.stderr
    assert "Traceback" not in completed.stderr
    assert "error:" in completed.stderr
    assert "what to do:" in completed.stderr
    for word in words:
        assert word in completed.stderr


def test_unknown_key_suggests_the_nearest(tmp_path: Path) -> None:
    file = pipeline(tmp_path, "source: {kafka: {bootstrap.servers: 'x:1'}, topcs: [a]}")
    assert_clear(ingest("run", file), EXIT_USER, "topcs", "topics")


@pytest.mark.long
def test_unreachable_broker_is_transient(tmp_path: Path) -> None:
    with socket.socket() as bound:  # refuses connections and reserves the port
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        source = f"source: {{kafka: {{bootstrap.servers: '{address}'}}, topics: [a]}}"
        file = pipeline(tmp_path, f"{source}\nretry: {{give_up_after: 5s}}")
        completed = ingest("run", file, "--available-now", "--json")
    assert_clear(completed, EXIT_TRANSIENT, address)
    waited = [json.loads(line) for line in completed.stdout.splitlines()]
    # An attempt takes ten seconds: one second after the first failure it retries; the second failure ends the run.
    assert [w["event"] for w in waited] == ["waiting"]
    assert address in waited[0]["problem"]
    assert (waited[0]["failures"], waited[0]["next_attempt_seconds"]) == (1, 1.0)
    assert waited[0]["since"] < waited[0]["gives_up_at"]


@pytest.mark.long
@pytest.mark.parametrize(("mode", "code"), [((), 0), (("--available-now",), EXIT_TRANSIENT)])
def test_signal_ends_a_waiting_run(tmp_path: Path, mode: tuple[str, ...], code: int) -> None:
    file = pipeline(tmp_path, "source: {kafka: {bootstrap.servers: '127.0.0.1:1'}, topics: [a]}")
    with subprocess.Popen(
        [sys.executable, "-c", "from ingest.cli import main; main()", "run", file, "--json", *mode],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        assert json.loads(running.stdout.readline())["event"] == "waiting"
        running.send_signal(signal.SIGTERM)
        # It would retry for an hour, with a line per attempt.
        rest, errors = running.communicate(timeout=120)
    assert running.returncode == code, errors
    assert rest == ""
    assert "Traceback" not in errors


def test_absent_topic_is_a_user_error(tmp_path: Path, stack: Stack) -> None:
    name = f"absent-{uuid.uuid4().hex}"
    servers = stack.kafka.bootstrap_servers
    file = pipeline(tmp_path, f"source: {{kafka: {{bootstrap.servers: '{servers}'}}, topics: [{name}]}}")
    assert_clear(ingest("run", file, "--available-now"), EXIT_USER, name)


def test_debug_shows_the_trace(tmp_path: Path) -> None:
    file = pipeline(tmp_path, "source: {kafka: {bootstrap.servers: 'x:1'}, topcs: [a]}")
    assert "Traceback" in ingest("run", file, "--debug").stderr


@pytest.mark.long
def test_bad_events_are_quarantined_and_others_merged(tmp_path: Path, stack: Stack, spark: SparkSession) -> None:
    topic = f"bad-{uuid.uuid4().hex}"
    producer = Producer({"bootstrap.servers": stack.kafka.bootstrap_servers})
    source = '"source": {"connector": "postgresql", "schema": "s", "table": "t", "lsn": %d, "ts_ms": 1}'
    good = '{"before": null, "after": {"id": 1, "v": "fine"}, "op": "c", ' + source % 5 + "}"
    no_key = '{"before": null, "after": {"v": "x"}, "op": "c", ' + source % 6 + "}"
    odd_op = '{"before": null, "after": {"id": 3, "v": "x"}, "op": "z", ' + source % 7 + "}"
    for key, value in (('{"id": 1}', good), ('{"id": 2}', "no json"), (None, no_key), ('{"id": 3}', odd_op)):
        producer.produce(topic, value, key, headers=[("trace", b"1")])
    assert producer.flush(60) == 0
    servers = stack.kafka.bootstrap_servers
    file = pipeline(tmp_path, f"source: {{kafka: {{bootstrap.servers: '{servers}'}}, topics: [{topic}]}}")
    completed = ingest("run", file, "--available-now")
    assert completed.returncode == 0, completed.stderr
    layout = Lakehouse(str(tmp_path / "lakehouse"))
    rows = spark.read.format("delta").load(layout.silver("wrong", "s.t")).select("id", "v").collect()
    assert [tuple(r) for r in rows] == [(1, "fine")]
    kept = Quarantine(spark, layout.quarantine, "wrong").rows().orderBy("offset").collect()
    assert [(r.topic, r.offset, r.code) for r in kept] == [
        (topic, 1, "not-json"),
        (topic, 2, "no-key"),
        (topic, 3, "unknown-op"),
    ]
    assert all(r.reason for r in kept)
    assert bytes(kept[0].value) == b"no json"
    assert kept[0].headers[0].key == "trace"
