"""A stream follows a table whose columns and key change between changes of its rows, with the source's triggers and
without them."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from ingest.cli import app
from ingest.cli.pipeline import resync as command
from ingest.config import Pipeline, load
from ingest.connector import ddl_trigger
from ingest.lakehouse.accounts import Accounts
from ingest.lakehouse.quarantine import Quarantine
from ingest.pipeline.composition import bronze_of
from ingest.quality import compare_with_postgres
from ingest.quality.accounting import audit
from ingest.spark.session import SHORT_LIVED
from ingest.stack import Stack
from tests.connector.records import Records, await_stream
from tests.pipeline.changing_table import cli, process

pytestmark = [pytest.mark.integration, pytest.mark.long]
SEED = 3
DDL = """
    CREATE SCHEMA live;
    CREATE TABLE live.items (
        id int PRIMARY KEY, region text NOT NULL DEFAULT 'eu', name text, total int, note text);
    INSERT INTO live.items SELECT g, 'eu', 'first', g, 'used' FROM generate_series(1, 100) g;
    CREATE TABLE live.signals (id varchar(64) PRIMARY KEY, type varchar(32), data text);
"""
TABLE = "live.items"
EXACT = (
    "ADD grade int DEFAULT 5",
    "DROP note",
    "ALTER total TYPE numeric(12, 2)",
    "DROP CONSTRAINT items_pkey, ADD PRIMARY KEY (id, region)",
)
"""Changes that every table follows."""
RENAMED = "RENAME total TO amount"
"""A change that events show as a drop and a new column."""
COMPUTED = "ALTER amount TYPE text USING CASE WHEN amount > 50 THEN 'large' ELSE 'small' END"
"""A change of which only the source knows the values."""
DEADLINE_SECONDS = 300.0


class Writer(threading.Thread):
    """Changes rows until it is stopped, but not while `lock` is held. Names only columns that stay."""

    def __init__(self, dsn: str) -> None:
        super().__init__(daemon=True)
        self.lock = threading.Lock()
        self._dsn = dsn
        self._done = threading.Event()

    def run(self) -> None:
        choose, number = random.Random(SEED), 100
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            while not self._done.wait(0.05):
                number += 1
                row = choose.randint(1, number)
                with self.lock, connection.transaction():
                    connection.execute("INSERT INTO live.items (id, name) VALUES (%s, 'new')", (number,))
                    connection.execute("UPDATE live.items SET name = %s WHERE id = %s", (f"at {number}", row))
                    connection.execute("DELETE FROM live.items WHERE id = %s", (choose.randint(1, number) - 1,))

    def stop(self) -> None:
        self._done.set()
        self.join(60)


class Live:
    """The table under change, its stream, and the stream's log."""

    def __init__(
        self,
        spark: SparkSession,
        dsn: str,
        file: Path,
        log: Path,
        writer: Writer,
        records: Records,
        running: subprocess.Popen[bytes],
    ) -> None:
        self.pipeline: Pipeline = load(str(file))
        self.log = log
        self._spark, self._dsn, self._file = spark, dsn, file
        self._writer, self._records, self._running = writer, records, running

    def alter(self, action: str) -> None:
        """Changes the table once the connector has read the rows from before, then lets rows change."""
        with self._writer.lock, psycopg.connect(self._dsn, autocommit=True) as connection:
            self._records.await_connector()
            connection.execute(f"ALTER TABLE {TABLE} {action}".encode())
        time.sleep(1)

    def until_equal(self) -> None:
        """Waits until silver equals the source, which doesn't change meanwhile."""
        with self._writer.lock:
            deadline = time.monotonic() + DEADLINE_SECONDS
            while (problem := self._difference()) is not None:
                assert time.monotonic() < deadline, f"{problem}\n{self.log.read_text()[-3000:]}"
                time.sleep(0.5)

    def until_it_differs_by(self, column: str) -> None:
        """Waits until silver has all rows of the source, equal but for the values of this column in some of them."""
        with self._writer.lock:
            deadline = time.monotonic() + DEADLINE_SECONDS
            while (problem := self._difference()) is None or [*problem[0]] != [column] or problem[1]:
                assert time.monotonic() < deadline, f"{problem}\n{self.log.read_text()[-3000:]}"
                time.sleep(0.5)

    def _difference(self) -> tuple[dict[str, int], bool] | None:
        """Returns column → number of rows that differ in it, and whether more than values differs; None if nothing
        does."""
        path = self.pipeline.layout.silver(self.pipeline.name, TABLE)
        if not (Path(path) / "_delta_log").exists():
            return {}, True
        rows = self._spark.read.format("delta").load(path)
        try:
            found = compare_with_postgres(self._spark, self._dsn, TABLE, rows)
        except AnalysisException as error:
            if "DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS" not in str(error):
                raise
            return {}, True
        assert found.source_rows > 90
        more = found.missing or found.extra or found.repeated or found.mistyped
        return None if found.equal else (dict(found.columns), bool(more))

    def resync(self) -> None:
        done = CliRunner().invoke(app, ["resync", str(self._file), TABLE, "--json"], catch_exceptions=False)
        assert done.exit_code == 0, done.output

    def end(self) -> None:
        """Ends the changes and the stream."""
        self._writer.stop()
        self._running.send_signal(signal.SIGTERM)
        assert self._running.wait(120) == 0

    def await_words(self, *words: str) -> None:
        """Waits until a line of the log has all of these words."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not any(all(word in line for word in words) for line in self.log.read_text().splitlines()):
            assert time.monotonic() < deadline, f"{words}\n{self.log.read_text()[-3000:]}"
            time.sleep(0.5)


@pytest.fixture(params=["told", "seen"])
def name(request: pytest.FixtureRequest) -> str:
    """`told`: the source has the triggers."""
    return f"live{request.param}"


@pytest.fixture
def live(
    name: str, stack: Stack, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Live]:
    monkeypatch.setattr(command, "running", lambda *_: nullcontext(spark))
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    dsn, file, log = make_conninfo(stack.postgres.dsn, dbname=name), tmp_path / f"{name}.yaml", tmp_path / "log"
    source = {
        "kafka": {"bootstrap.servers": stack.kafka.address},
        "topic_pattern": rf"{name}\.live\.items",
        "connect": {"url": stack.connect.url, "connector": name},
    }
    settings = {"source": source, "lakehouse": str(tmp_path / "lakehouse"), "spark": SHORT_LIVED}
    file.write_text(json.dumps(settings), encoding="utf-8")
    written = CliRunner().invoke(app, ["connector", "recipe", "postgres", str(file), "--json"], catch_exceptions=False)
    # A table that changes all the time: Debezium's thread for signals from Kafka would read it beside its other one.
    monkeypatch.setenv("INGEST_SOURCE_DSN", dsn)
    signals = {"signal.data.collection": "live.signals", "signal.enabled.channels": "source,kafka"}
    faster = {"signal.poll.interval.ms": "200", "heartbeat.interval.ms": "500", "poll.interval.ms": "50"}
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(DDL)
        stack.connect.register(
            name, json.loads(written.stdout)["config"] | faster | signals | {"database.dbname": name}
        )
        writer = Writer(dsn)
        try:
            await_stream(connection, name)
            if name.endswith("told"):
                connection.execute(ddl_trigger().encode())
            with Records(stack, name, connection) as records, log.open("w") as output:
                records.await_connector()
                writer.start()
                with process(*cli("run", str(file)), log=output) as running:
                    yield Live(spark, dsn, file, log, writer, records, running)
        finally:
            writer.stop()
            stack.connect.delete(name)


@pytest.mark.timeout(900)
def test_stream_follows_each_change_and_says_what_only_the_source_knows(
    live: Live, name: str, spark: SparkSession
) -> None:
    live.until_equal()
    for action in EXACT:
        live.alter(action)
        live.until_equal()
    live.alter(RENAMED)
    if name.endswith("seen"):
        live.until_it_differs_by("amount")
        live.resync()
    live.until_equal()
    live.alter(COMPUTED)
    if name.endswith("told"):
        live.await_words("amount", "ingest resync")
    live.until_it_differs_by("amount")
    live.resync()
    live.until_equal()
    live.end()
    pipeline = live.pipeline
    accounts = Accounts(spark, pipeline.layout.accounts, pipeline.name)
    assert accounts.set_aside() == {}
    assert not audit(bronze_of(spark, pipeline).rows(), accounts.rows()).problems
    assert Quarantine(spark, pipeline.layout.quarantine, pipeline.name).rows().count() == 0
