"""Kafka and Connect restart during a stream with changes: the run waits, reports it, and ends equal to the source."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
from pyspark.sql import SparkSession

from ingest.stack import Stack
from tests.pipeline.changing_table import ROOT, ChangingTable, captured_table, cli, wait_for_commit

pytestmark = [pytest.mark.integration, pytest.mark.long]


@contextmanager
def stream(file: Path) -> Iterator[subprocess.Popen[str]]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, *cli("run", str(file), "--json")]
    running = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        yield running
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
        running.wait(30)


def read_until(output: IO[str], event: str) -> dict[str, Any]:
    """Reads the output up to an object with this event, or up to a batch."""
    for line in output:
        printed: dict[str, Any] = json.loads(line)
        if event in printed or printed.get("event") == event:
            return printed
    pytest.fail(f"the stream ended before it said {event}")


@pytest.fixture
def table(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChangingTable]:
    with captured_table(stack, tmp_path_factory.mktemp("restarted"), "restarted") as made:
        yield made


def test_restarts_of_kafka_and_connect_lose_no_event(table: ChangingTable, spark: SparkSession) -> None:
    stack = table.stack
    with table.changing(), stream(table.file) as running:
        assert running.stdout is not None
        read_until(running.stdout, "captured")
        for _ in range(2):
            stack.kafka.stop()
            waiting = read_until(running.stdout, "waiting")
            assert stack.kafka.bootstrap_servers in waiting["problem"]
            stack.kafka.start()
            assert read_until(running.stdout, "resumed")["since"] == waiting["since"]
            read_until(running.stdout, "captured")
        stack.connect.kill()
        stack.connect.start()
        wait_for_commit(table.silver)
        running.send_signal(signal.SIGTERM)
        assert running.wait(120) == 0
    table.require_equal_in_the_end(spark)
    table.require_nothing_lost_nothing_doubled(spark)
