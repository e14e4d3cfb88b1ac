"""A table under constant change, and the invariants that must hold at the end, after any kills."""

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
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psycopg
from psycopg import sql
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ingest.config import load
from ingest.lakehouse.accounts import Accounts
from ingest.lakehouse.bronze import COORDINATES, Bronze
from ingest.lakehouse.quarantine import Quarantine
from ingest.names import Lakehouse
from ingest.pipeline.composition import Run
from ingest.quality import compare_with_postgres
from ingest.spark.session import SHORT_LIVED
from ingest.stack import Stack

ROOT = Path(__file__).parents[2]
SEED = 20


class Writer(threading.Thread):
    """Writes about thirty inserts, updates and deletes per second until it is stopped."""

    def __init__(self, dsn: str, schema: str) -> None:
        super().__init__(daemon=True)
        self._dsn = dsn
        self._items = sql.Identifier(schema, "items")
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
            connection.execute(sql.SQL("DELETE FROM {} WHERE id = %s").format(self._items), (key,))
        else:
            connection.execute(
                sql.SQL(
                    "INSERT INTO {} VALUES (%s, %s, %s) "
                    "ON CONFLICT (id) DO UPDATE SET amount = EXCLUDED.amount, note = EXCLUDED.note"
                ).format(self._items),
                (key, choose.randint(0, 10**6) / 100, choose.choice(["a", "b", None])),
            )

    def stop(self) -> None:
        self._done.set()
        self.join(120)


@dataclass(frozen=True)
class ChangingTable:
    """`name`: of the pipeline, its connector, and the schema of the table `items`."""

    stack: Stack
    name: str
    file: Path
    layout: Lakehouse

    @property
    def bronze(self) -> Path:
        return Path(self.layout.bronze(self.name))

    @property
    def silver(self) -> Path:
        return Path(self.layout.silver(self.name, f"{self.name}.items"))

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Changes rows during the block."""
        writer = Writer(self.stack.postgres.dsn, self.name)
        writer.start()
        try:
            yield
        finally:
            writer.stop()

    def require_equal_in_the_end(self, spark: SparkSession) -> None:
        """Runs batches until silver equals the source. Debezium may lag behind at first."""
        with process(*cli("run", str(self.file), "--available-now")) as running:
            assert running.wait(600) == 0
        run = Run(spark, load(str(self.file)))
        deadline = time.monotonic() + 600
        while True:
            run.available_now(threading.Event(), lambda _: None)
            rows = spark.read.format("delta").load(str(self.silver))
            comparison = compare_with_postgres(spark, self.stack.postgres.dsn, f"{self.name}.items", rows)
            if comparison.equal:
                assert comparison.source_rows > 100
                return
            assert time.monotonic() < deadline, f"silver differs from the source: {comparison}"
            time.sleep(1)

    def require_nothing_lost_nothing_doubled(self, spark: SparkSession) -> None:
        rows = Bronze(spark, str(self.bronze)).rows()
        total = rows.count()
        assert rows.select(*COORDINATES).distinct().count() == total
        ends = rows.groupBy("topic", "partition").agg((F.max("offset") + 1).alias("end"), F.count("*").alias("n"))
        assert ends.where("end != n").count() == 0, "bronze holds every offset"
        accounts = Accounts(spark, self.layout.accounts, self.name).rows()
        sums = accounts.agg(F.sum("read"), F.sum(F.expr("applied + superseded + quarantined + suppressed"))).first()
        assert sums is not None
        assert tuple(sums) == (total, total)
        assert Quarantine(spark, self.layout.quarantine, self.name).rows().count() == 0


@contextmanager
def captured_table(stack: Stack, folder: Path, name: str) -> Iterator[ChangingTable]:
    """Yields a table, its connector, a pipeline file, and a lakehouse."""
    items = sql.Identifier(name, "items")
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name)))
        connection.execute(
            sql.SQL("CREATE TABLE {} (id int PRIMARY KEY, amount numeric(12,2), note text)").format(items)
        )
        connection.execute(sql.SQL("INSERT INTO {} SELECT g, g, 'start' FROM generate_series(1, 200) g").format(items))
    stack.connect.register(name, {**stack.postgres.connector(name), "schema.include.list": name})
    lakehouse, file = folder / "lakehouse", folder / f"{name}.yaml"
    file.write_text(
        f"source:\n  kafka: {{bootstrap.servers: '{stack.kafka.bootstrap_servers}'}}\n"
        f"  topic_pattern: {name}\\.{name}\\..*\nlakehouse: {lakehouse}\nspark: {json.dumps(SHORT_LIVED)}\n",
        encoding="utf-8",
    )
    yield ChangingTable(stack, name, file, Lakehouse(str(lakehouse)))
    stack.connect.delete(name)


@contextmanager
def process(*arguments: str, log: IO[str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Yields a process with its JVM in its own process group, which is killed at the end. `log`: gets its output, if
    not the test's own."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, *arguments]
    running = subprocess.Popen(command, env=environment, start_new_session=True, stdout=log, stderr=log)
    try:
        yield running
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
        running.wait(120)


def cli(*arguments: str) -> tuple[str, ...]:
    """Returns the arguments of Python that run a command of `ingest`."""
    return ("-c", "from ingest.cli import main; main()", *arguments)


def wait_for_commit(path: Path, seconds: float = 600) -> None:
    """Waits until a Delta table gains a commit."""
    log = path / "_delta_log"
    before = len(list(log.glob("*.json")))
    deadline = time.monotonic() + seconds
    while len(list(log.glob("*.json"))) <= before:
        assert time.monotonic() < deadline, f"nothing was committed to {path.name}"
        time.sleep(0.05)
