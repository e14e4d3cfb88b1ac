"""Two processes run one pipeline from a real topic into one lakehouse: both continue, nothing is lost or duplicated."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from ingest.lakehouse.accounts import Accounts
from ingest.lakehouse.bronze import COORDINATES, Bronze
from ingest.names import Lakehouse
from ingest.quality.accounting import audit
from ingest.stack import Stack

pytestmark = [pytest.mark.integration, pytest.mark.long]
ROOT = Path(__file__).parents[2]
ROUNDS, KEYS = 40, 30
WAIT_SECONDS = 900


class Shop:
    """A topic of a table with a key, one of a keyless table, and the pipeline that reads both."""

    def __init__(self, spark: SparkSession, servers: str, folder: Path) -> None:
        self._spark = spark
        self._producer = Producer({"bootstrap.servers": servers})
        self._prefix = f"twice-{uuid.uuid4().hex[:8]}"
        self._lsn = self.sent = 0
        self.keyed: dict[int, int] = {}
        self.bag: Counter[int] = Counter()
        self.file = folder / "twice.yaml"
        memory = {"spark.driver.memory": "700m"}
        self.file.write_text(
            f"source:\n  kafka: {{bootstrap.servers: '{servers}'}}\n  topic_pattern: {self._prefix}\\..*\n"
            f"lakehouse: {folder}/lakehouse\nbatch: {{max_events: 20, poll_seconds: 0.1}}\n"
            f"spark: {json.dumps(memory)}\n",
            encoding="utf-8",
        )
        self._layout = Lakehouse(f"{folder}/lakehouse")

    def change(self, number: int) -> None:
        """Makes one round of changes: updates and deletes of some keys; inserts and deletes in the keyless table."""
        for key in range(number % 3, KEYS, 3):
            if (key + number) % 7 == 0 and key in self.keyed:
                del self.keyed[key]
                self._send("keyed", "d", {"id": key}, before={"id": key})
            else:
                self.keyed[key] = number
                self._send("keyed", "u", {"id": key}, after={"id": key, "v": number})
        for v in (number % 5, number % 11):
            self.bag[v] += 1
            self._send("bag", "c", None, after={"v": v})
        gone = number % 4
        if self.bag[gone]:
            self.bag[gone] -= 1
            self._send("bag", "d", None, before={"v": gone})
        assert self._producer.flush(60) == 0

    def _send(self, table: str, op: str, key: object, **images: object) -> None:
        self._lsn += 10
        source = {"connector": "postgresql", "schema": "s", "table": table, "lsn": self._lsn, "ts_ms": 1}
        value = json.dumps({"before": None, "after": None, "source": source, "op": op} | images)
        self._producer.produce(f"{self._prefix}.{table}", value, None if key is None else json.dumps(key))
        self.sent += 1

    @contextmanager
    def run(self, *options: str) -> Iterator[subprocess.Popen[str]]:
        running = subprocess.Popen(
            [sys.executable, "-c", "from ingest.cli import main; main()", "run", str(self.file), *options],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            yield running
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)
            running.wait(60)

    def merged(self) -> int:
        """Returns how many records are accounted for."""
        accounts = Accounts(self._spark, self._layout.accounts, "twice").rows()
        return int(accounts.selectExpr("coalesce(sum(read), 0)").first()[0])  # type: ignore[index]

    def is_right(self) -> None:
        rows = Bronze(self._spark, self._layout.bronze("twice")).rows()
        assert rows.select(*COORDINATES).distinct().count() == rows.count() == self.sent
        keyed, bag = (
            self._spark.read.format("delta").load(self._layout.silver("twice", f"s.{table}")).collect()
            for table in ("keyed", "bag")
        )
        assert {row.id: row.v for row in keyed} == self.keyed
        assert len(keyed) == len(self.keyed)
        assert Counter(row.v for row in bag) == +self.bag
        found = audit(rows, Accounts(self._spark, self._layout.accounts, "twice").rows())
        assert (found.problems, found.merged, found.waiting) == ([], self.sent, 0)


@pytest.fixture
def shop(spark: SparkSession, stack: Stack, tmp_path: Path) -> Shop:
    return Shop(spark, stack.kafka.bootstrap_servers, tmp_path)


def wait_until_reading(running: subprocess.Popen[str]) -> None:
    """Waits until a run has said which topics it reads."""
    assert running.stderr is not None
    for line in running.stderr:
        if line.startswith("reading "):
            return
    pytest.fail("it ended before it read anything")


def test_two_streams_of_one_pipeline_merge_every_event_once(shop: Shop) -> None:
    shop.change(0)
    with shop.run() as one, shop.run() as other:
        for running in (one, other):
            wait_until_reading(running)
        for number in range(1, ROUNDS):
            shop.change(number)
            time.sleep(0.2)
        deadline = time.monotonic() + WAIT_SECONDS
        while shop.merged() < shop.sent:
            assert time.monotonic() < deadline
            assert (one.poll(), other.poll()) == (None, None), "a run ended"
            time.sleep(1)
        for running in (one, other):
            running.send_signal(signal.SIGTERM)
        outputs = [running.communicate(timeout=WAIT_SECONDS)[1] for running in (one, other)]
        assert (one.returncode, other.returncode) == (0, 0), outputs
        assert all("Traceback" not in text and "rror" not in text for text in outputs), outputs
    shop.is_right()


def test_two_available_now_runs_merge_every_event_once(shop: Shop) -> None:
    """The lakehouse doesn't exist yet, so both runs create the same tables."""
    for number in range(ROUNDS):
        shop.change(number)
    with shop.run("--available-now") as one, shop.run("--available-now") as other:
        outputs = [running.communicate(timeout=WAIT_SECONDS)[1] for running in (one, other)]
        assert (one.returncode, other.returncode) == (0, 0), outputs
        assert all("Traceback" not in text and "rror" not in text for text in outputs), outputs
    shop.is_right()
