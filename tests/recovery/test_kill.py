"""Processes die while rows change; started again, they bring silver to exactly what the source holds."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ingest.config import load
from ingest.names import Lakehouse
from ingest.quality import compare_with_postgres
from ingest.run.pipeline import Run
from ingest.session import SHORT_LIVED
from ingest.stack import Stack
from ingest.tables.accounts import Accounts
from ingest.tables.bronze import COORDINATES, Bronze
from ingest.tables.quarantine import Quarantine

pytestmark = [pytest.mark.integration, pytest.mark.long]
ROOT = Path(__file__).parents[2]
SEED = 20


class Writer(threading.Thread):
    """Inserts, updates and deletes, some thirty rows a second, until it is told to stop."""

    def __init__(self, dsn: str) -> None:
        super().__init__(daemon=True)
        self._dsn = dsn
        self._done = threading.Event()

    def run(self) -> None:
        choose = random.Random(SEED)
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            while not self._done.wait(0.2):
                with connection.transaction():
                    for _ in range(choose.randint(1, 10)):
                        self._change(connection, choose)

    def _change(self, connection: psycopg.Connection, choose: random.Random) -> None:
        key = choose.randint(1, 400)
        if choose.random() < 0.3:
            connection.execute("DELETE FROM kill.items WHERE id = %s", (key,))
        else:
            connection.execute(
                "INSERT INTO kill.items VALUES (%s, %s, %s) "
                "ON CONFLICT (id) DO UPDATE SET amount = EXCLUDED.amount, note = EXCLUDED.note",
                (key, choose.randint(0, 10**6) / 100, choose.choice(["a", "b", None])),
            )

    def stop(self) -> None:
        self._done.set()
        self.join(120)


@pytest.fixture(scope="module")
def source(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stack, Path, Path]]:
    """A table that changes, its connector, a pipeline file, and a lakehouse."""
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA kill")
        connection.execute("CREATE TABLE kill.items (id int PRIMARY KEY, amount numeric(12,2), note text)")
        connection.execute("INSERT INTO kill.items SELECT g, g, 'start' FROM generate_series(1, 200) g")
    stack.connect.register("kill", {**stack.postgres.connector("kill"), "schema.include.list": "kill"})
    folder = tmp_path_factory.mktemp("kill")
    lakehouse = folder / "lakehouse"
    file = folder / "kill.yaml"
    file.write_text(
        f"source:\n  kafka: {{bootstrap.servers: '{stack.kafka.bootstrap_servers}'}}\n"
        f"  topic_pattern: kill\\.kill\\..*\nlakehouse: {lakehouse}\nspark: {json.dumps(SHORT_LIVED)}\n",
        encoding="utf-8",
    )
    yield stack, file, lakehouse
    stack.connect.delete("kill")


@contextmanager
def process(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of its own, with the JVM that it starts in its process group; killed whole at the end."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    running = subprocess.Popen([sys.executable, *arguments], env=environment, start_new_session=True)
    try:
        yield running
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
        running.wait(120)


def cli(*arguments: str) -> tuple[str, ...]:
    return ("-c", "from ingest.cli import main; main()", *arguments)


def until_grows(path: Path, seconds: float = 600) -> None:
    """Waits until a Delta table gains a commit."""
    log = path / "_delta_log"
    before = len(list(log.glob("*.json")))
    deadline = time.monotonic() + seconds
    while len(list(log.glob("*.json"))) <= before:
        assert time.monotonic() < deadline, f"nothing was committed to {path.name}"
        time.sleep(0.05)


def test_killed_anywhere_silver_ends_as_the_source(source: tuple[Stack, Path, Path], spark: SparkSession) -> None:
    stack, file, root = source
    layout = Lakehouse(str(root))
    bronze, silver = Path(layout.bronze("kill")), Path(layout.silver("kill", "kill.items"))
    choose = random.Random(SEED)
    writer = Writer(stack.postgres.dsn)
    writer.start()
    try:
        with process("jobs/capture.py", str(file)):
            until_grows(bronze)
            stack.connect.kill()
            time.sleep(choose.random())  # SIGKILL somewhere in the next batch
        stack.connect.start()
        with process("jobs/merge.py", str(file)):
            until_grows(silver)
        with process(*cli("run", str(file))):
            until_grows(silver)
            time.sleep(choose.random())
        with process(*cli("run", str(file))) as running:
            until_grows(silver)
            running.send_signal(signal.SIGTERM)  # Not a kill: it finishes its batch and says that all is well.
            assert running.wait(600) == 0
    finally:
        writer.stop()
    _drain(stack, file, spark, silver)
    _nothing_lost_nothing_doubled(spark, layout)


def _drain(stack: Stack, file: Path, spark: SparkSession, silver: Path) -> None:
    """Batches until silver equals the source; Debezium may still be behind at the first."""
    with process(*cli("run", str(file), "--available-now")) as running:
        assert running.wait(600) == 0
    run = Run(spark, load(str(file)))
    deadline = time.monotonic() + 600
    while True:
        run.available_now(threading.Event(), lambda _: None)
        rows = spark.read.format("delta").load(str(silver))
        comparison = compare_with_postgres(spark, stack.postgres.dsn, "kill.items", rows)
        if comparison.equal:
            assert comparison.source_rows > 100
            return
        assert time.monotonic() < deadline, f"silver differs from the source: {comparison}"
        time.sleep(1)


def _nothing_lost_nothing_doubled(spark: SparkSession, layout: Lakehouse) -> None:
    rows = Bronze(spark, layout.bronze("kill")).rows()
    total = rows.count()
    assert rows.select(*COORDINATES).distinct().count() == total
    ends = rows.groupBy("topic", "partition").agg((F.max("offset") + 1).alias("end"), F.count("*").alias("n"))
    assert ends.where("end != n").count() == 0, "bronze holds every offset"
    accounts = Accounts(spark, layout.accounts, "kill").rows()
    sums = accounts.agg(F.sum("read"), F.sum(F.expr("applied + superseded + quarantined + suppressed"))).first()
    assert sums is not None
    assert tuple(sums) == (total, total)
    assert Quarantine(spark, layout.quarantine, "kill").rows().count() == 0
