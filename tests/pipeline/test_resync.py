"""`ingest resync` on the real connector heals rows that silver holds wrongly."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from ingest.backfill.rebuilding import Rebuild
from ingest.backfill.resync import TableRead
from ingest.backfill.whole_read import WholeRead
from ingest.cli import app
from ingest.cli.lakehouse import as_of as as_of_command
from ingest.cli.pipeline import resync as command
from ingest.config import Pipeline, load
from ingest.errors import EXIT_USER, ConfigError, Contended, SourceRefused, Unreachable
from ingest.lakehouse.catalog import Catalog
from ingest.pipeline.composition import Run
from ingest.stack import Stack
from tests.connector.topics import waiting

pytestmark = pytest.mark.integration
NAME = "again"
ODD = "again.Odd-näme(x)$"
DDL = """
    CREATE SCHEMA again;
    CREATE TABLE again.stock (id int PRIMARY KEY, qty int, "Note" text);
    CREATE TABLE again."Odd-näme(x)$" (id int PRIMARY KEY, qty int, "Note" text);
    CREATE TABLE again.keyless (id int);
    CREATE TABLE again.busy (id int PRIMARY KEY, qty int, "Note" text);
    CREATE TABLE again.empty (id int PRIMARY KEY, qty int, "Note" text);
    INSERT INTO again.stock SELECT g, 0, 'secret-' || g FROM generate_series(1, 9) g;
    INSERT INTO again."Odd-näme(x)$" SELECT g, 0, 'x' FROM generate_series(1, 3) g;
    INSERT INTO again.keyless VALUES (1);
    INSERT INTO again.busy SELECT g, 0, 'x' FROM generate_series(1, 300) g;
    INSERT INTO again.empty VALUES (1, 0, 'x'), (2, 0, 'y');
"""


@pytest.fixture(autouse=True)
def same_session(monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> None:
    monkeypatch.setattr(command, "running", lambda *_: nullcontext(spark))


class Writer(threading.Thread):
    """Changes rows of `again.busy` until it is stopped, but not while `lock` is held. Rows 1 to 300 are never
    deleted."""

    def __init__(self, dsn: str) -> None:
        super().__init__(daemon=True)
        self.lock = threading.Lock()
        self._dsn, self._done = dsn, threading.Event()

    def run(self) -> None:
        choose, number = random.Random(3), 300
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            while not self._done.wait(0.02):
                number += 1
                with self.lock, connection.transaction():
                    connection.execute("INSERT INTO again.busy VALUES (%s, 0, 'new')", (number,))
                    connection.execute("DELETE FROM again.busy WHERE id BETWEEN 301 AND %s", (number - 3,))
                    rows = choose.sample(range(1, 301), 3)
                    connection.execute("UPDATE again.busy SET qty = %s WHERE id = ANY (%s)", (number, rows))

    def stop(self) -> None:
        self._done.set()
        self.join(60)


class Shop:
    def __init__(self, stack: Stack, spark: SparkSession, file: Path) -> None:
        self.database = psycopg.connect(stack.postgres.dsn, autocommit=True)
        self.file = file
        self.pipeline: Pipeline = load(file)
        self._spark = spark

    def change_unlogged(self, *statements: str) -> None:
        """Makes changes that never reach the log's readers."""
        self.database.execute(f"ALTER PUBLICATION {NAME} DROP TABLE again.stock")
        for statement in statements:
            self.database.execute(statement)
        self.database.execute(f"ALTER PUBLICATION {NAME} ADD TABLE again.stock")

    def position(self) -> str:
        """Returns the end of the database's log."""
        ((lsn,),) = self.database.execute("SELECT pg_current_wal_lsn()::text").fetchall()
        return str(lsn)

    def in_database(self, table: str = "again.stock") -> dict[int, tuple[Any, ...]]:
        schema, name = table.split(".")
        return {r[0]: r[1:] for r in self.database.execute(f'SELECT id, qty, "Note" FROM {schema}."{name}"')}

    def in_silver(self, table: str = "again.stock") -> dict[int, tuple[Any, ...]]:
        path = self.pipeline.layout.silver(NAME, table)
        if not Path(path).exists():
            return {}
        rows = self._spark.read.format("delta").load(path).select("id", "qty", "Note").collect()
        return {r["id"]: (r["qty"], r["Note"]) for r in rows}

    def merge(self) -> None:
        with Run(self._spark, self.pipeline) as run:
            while not run.step().idle:
                continue

    def until_equal(self, table: str = "again.stock") -> None:
        for attempt in waiting():
            with attempt:
                self.merge()
                assert self.in_silver(table) == self.in_database(table)

    def resync(self, table: str, *options: str) -> dict[str, Any]:
        """Runs the command and returns its JSON."""
        done = CliRunner().invoke(app, ["resync", str(self.file), table, "--json", *options], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        found: dict[str, Any] = json.loads(done.stdout)
        return found


@pytest.fixture(scope="module")
def shop(stack: Stack, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """Registers a connector with the recipe's configuration."""
    folder = tmp_path_factory.mktemp(NAME)
    file = folder / f"{NAME}.yaml"
    source = {
        "kafka": {"bootstrap.servers": stack.kafka.address},
        "topic_pattern": rf"{NAME}\.again\..*",
        "connect": {"url": stack.connect.url, "connector": NAME},
    }
    file.write_text(json.dumps({"source": source, "lakehouse": str(folder / "lakehouse")}), encoding="utf-8")
    shop = Shop(stack, spark, file)
    shop.database.execute(DDL)
    written = CliRunner().invoke(app, ["connector", "recipe", "postgres", str(file), "--json"], catch_exceptions=False)
    config = json.loads(written.stdout)["config"]
    faster = {"incremental.snapshot.chunk.size": "4", "signal.poll.interval.ms": "200", "heartbeat.interval.ms": "500"}
    stack.connect.register(NAME, config | faster)
    yield shop
    stack.connect.delete(NAME)


@pytest.mark.long
def test_resync_heals_lost_changes(shop: Shop) -> None:
    shop.until_equal()
    shop.change_unlogged(
        "UPDATE again.stock SET qty = 7 WHERE id = 2",
        "INSERT INTO again.stock VALUES (20, 1, 'never captured')",
        "DELETE FROM again.stock WHERE id = 5",
    )
    found = shop.resync("again.stock")
    assert (found["rows"], found["removes"]) == (9, True)
    shop.until_equal()
    assert 5 not in shop.in_silver()
    shop.database.execute("INSERT INTO again.stock VALUES (5, 50, 'back')")
    shop.change_unlogged("DELETE FROM again.stock WHERE id = 6")
    shop.resync("again.stock")  # The newest rows are reads of the resync before.
    shop.until_equal()


@pytest.mark.long
def test_several_changes_of_one_row_do_not_stand_for_rows_that_were_not_read(shop: Shop, spark: SparkSession) -> None:
    shop.until_equal()
    entry = Catalog(spark, shop.pipeline.layout.tables).entry(NAME, "again.stock")
    whole_read = WholeRead(spark, shop.pipeline, entry)
    for qty in range(100, 103):
        shop.database.execute("UPDATE again.stock SET qty = %s WHERE id = 1", (qty,))
    with pytest.raises(Unreachable, match="1 of 3 rows"):
        whole_read.record(TableRead(("again", "stock"), "signal", 3), 10)


@pytest.mark.long
def test_row_that_changes_while_its_chunk_is_read_keeps_its_value(shop: Shop) -> None:
    """The database reads the row, then it changes, then the database answers."""
    shop.until_equal()
    shop.database.execute("""
        CREATE OR REPLACE FUNCTION again.is_slow() RETURNS bool LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_sleep(3); RETURN true; END $$
    """)
    is_read = """
        SELECT count(*) FROM pg_stat_activity
        WHERE state = 'active' AND query LIKE 'SELECT * FROM%is_slow%' AND query NOT SIMILAR TO '%(ctid| DESC)%'
    """
    with ThreadPoolExecutor() as beside:
        resync = beside.submit(shop.resync, "again.stock", "--where", "(SELECT again.is_slow())")
        while shop.database.execute(is_read).fetchone() != (1,) and not resync.done():
            time.sleep(0.05)
        shop.database.execute("UPDATE again.stock SET qty = qty + 1 WHERE id = 1")
        assert not resync.done(), "the row has changed too late"
        resync.result()
    time.sleep(2)
    shop.until_equal()


@pytest.mark.long
def test_table_that_changes_all_the_time_keeps_its_rows_and_values(shop: Shop, stack: Stack) -> None:
    """Unless the command says that it could not read it."""
    shop.until_equal("again.busy")
    writer, read = Writer(stack.postgres.dsn), 0
    writer.start()
    try:
        for _ in range(8):
            try:
                shop.resync("again.busy")
            except Contended:
                shop.merge()
            except SourceRefused as refused:
                assert refused.exit_code == EXIT_USER
                assert "--signal-table" in refused.remedy
                stack.connect.restart(NAME)
                shop.merge()
            else:
                read += 1
                with writer.lock:
                    shop.until_equal("again.busy")
            if read == 2:
                break
    finally:
        writer.stop()
    assert read, "no attempt succeeded"


@pytest.mark.long
def test_table_that_is_empty_at_the_source_is_emptied(shop: Shop) -> None:
    shop.until_equal("again.empty")
    shop.database.execute(f"ALTER PUBLICATION {NAME} DROP TABLE again.empty")
    shop.database.execute("DELETE FROM again.empty")
    shop.database.execute(f"ALTER PUBLICATION {NAME} ADD TABLE again.empty")
    assert shop.in_silver("again.empty")
    found = shop.resync("again.empty")
    assert (found["rows"], found["removes"]) == (0, True)
    shop.until_equal("again.empty")


@pytest.mark.long
def test_rebuild_removes_the_same_rows(shop: Shop, spark: SparkSession) -> None:
    shop.until_equal()
    Rebuild(spark, shop.pipeline, ("again.stock",)).run(lambda _: None)
    assert shop.in_silver() == shop.in_database()


@pytest.mark.long
def test_table_as_of_before_a_resync_keeps_the_row(
    shop: Shop, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(as_of_command, "running", lambda *_: nullcontext(spark))
    shop.until_equal()
    shop.database.execute("INSERT INTO again.stock VALUES (30, 0, 'its delete is lost')")
    # Its event tells that the one before it is committed.
    shop.database.execute("INSERT INTO again.stock VALUES (32, 0, 'next')")
    shop.until_equal()
    before = shop.position()
    shop.change_unlogged("DELETE FROM again.stock WHERE id = 30")
    shop.resync("again.stock")
    shop.database.execute("INSERT INTO again.stock VALUES (31, 0, 'later')")
    shop.until_equal()
    after = shop.position()
    for position, is_there in ((before, True), (after, False)):
        out = tmp_path / position.replace("/", "-")
        done = CliRunner().invoke(
            app,
            ["as-of", str(shop.file), "--position", position, "--out", str(out), "--json"],
            catch_exceptions=False,
        )
        paths = {t["table"]: t["path"] for t in json.loads(done.stdout)["tables"]}
        assert "again.stock" in paths, done.stdout
        assert (30 in {r["id"] for r in spark.read.format("delta").load(paths["again.stock"]).collect()}) is is_there


@pytest.mark.long
def test_only_rows_of_the_predicate_are_read(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    shop.until_equal()
    shop.change_unlogged(
        "UPDATE again.stock SET qty = 8 WHERE id IN (3, 4)", "DELETE FROM again.stock WHERE id IN (7, 8)"
    )
    found = shop.resync("again.stock", "--where", """id IN (3, 7) AND "Note" LIKE 'secret-%'""")
    assert (found["rows"], found["removes"]) == (1, False)
    for attempt in waiting():
        with attempt:
            shop.merge()
            assert shop.in_silver()[3] == shop.in_database()[3]
    assert shop.in_silver()[4] != shop.in_database()[4]
    assert {7, 8} <= shop.in_silver().keys()
    assert "secret" not in caplog.text + json.dumps(found)
    shop.resync("again.stock")
    shop.until_equal()


def test_names_are_escaped(shop: Shop) -> None:
    assert shop.resync(ODD)["rows"] == 3
    assert shop.resync(ODD, "--where", "id < 3")["rows"] == 2


def test_query_that_fails_once_is_sent_again(shop: Shop) -> None:
    """As a query of Debezium does if its other thread commits on the connection meanwhile."""
    shop.database.execute("""
        CREATE SEQUENCE again.calls;
        CREATE FUNCTION again.is_called_again() RETURNS bool LANGUAGE plpgsql AS
        $$ BEGIN
            IF nextval('again.calls') = 1 THEN RAISE 'fails once'; END IF;
            RETURN true;
        END $$
    """)
    assert shop.resync(ODD, "--where", "id < 3 AND again.is_called_again()")["rows"] == 2


@pytest.mark.parametrize(
    ("table", "options", "problem"),
    [
        ("again.keyless", (), "has no (primary )?key"),
        ("again.keyless", ("--where", "id = 1"), "no primary key"),
        ("again.absent", (), "not among the tables"),
        ("again.two words", (), "a name with a space, a quote or a dot"),
        ("again.stock", ("--where", "nowhere = 'secret'"), "query failed"),
    ],
)
def test_unreadable_tables_are_refused(shop: Shop, table: str, options: tuple[str, ...], problem: str) -> None:
    with pytest.raises((SourceRefused, ConfigError), match=problem) as refused:
        shop.resync(table, *options)
    assert refused.value.exit_code == EXIT_USER
    assert "secret" not in str(refused.value)


@pytest.mark.long
def test_signal_by_a_table(shop: Shop, stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connector writes its watermarks to the signal table, too."""
    shop.database.execute("CREATE TABLE again.signals (id varchar(64) PRIMARY KEY, type varchar(32), data text)")
    config = stack.connect.connectors.configuration(NAME)
    config = {k: v for k, v in config.items() if not k.startswith(("signal.", "read.only"))}
    own = {"name": "tabled", "topic.prefix": "tabled", "slot.name": "tabled", "publication.name": "tabled"}
    own |= {"signal.data.collection": "again.signals", "notification.sink.topic.name": "tabled-notifications"}
    stack.connect.register("tabled", config | own)
    file = shop.file.with_name("tabled.yaml")
    text = shop.file.read_text().replace(f'"connector": "{NAME}"', '"connector": "tabled"')
    file.write_text(text.replace(rf"{NAME}\\.again", r"tabled\\.again"))
    monkeypatch.setenv("INGEST_SOURCE_DSN", stack.postgres.dsn)
    options = ("resync", str(file), "again.stock", "--json", "--where", "id < 4", "--signal-table", "again.signals")
    try:
        done = CliRunner().invoke(app, options, catch_exceptions=False)
        assert json.loads(done.stdout)["rows"] == 3
        monkeypatch.setenv("INGEST_SOURCE_DSN", "")
        with pytest.raises(ConfigError, match="needs its schema and a connection"):
            CliRunner().invoke(app, options, catch_exceptions=False)
    finally:
        stack.connect.delete("tabled")


@pytest.mark.long
def test_missing_properties_are_named(shop: Shop, stack: Stack) -> None:
    config = stack.connect.connectors.configuration(NAME)
    lacking = {k: v for k, v in config.items() if not k.startswith(("signal.", "notification.", "read.only"))}
    own = {"name": "plain", "topic.prefix": "plain", "slot.name": "plain", "publication.name": "plain"}
    stack.connect.connectors.put("plain", lacking | own)
    file = shop.file.with_name("plain.yaml")
    file.write_text(shop.file.read_text().replace(f'"connector": "{NAME}"', '"connector": "plain"'))
    try:
        with pytest.raises(ConfigError, match="not set up for a resync") as refused:
            CliRunner().invoke(app, ["resync", str(file), "again.stock"], catch_exceptions=False)
    finally:
        stack.connect.delete("plain")
    servers = stack.kafka.address
    for line in (f"signal.kafka.bootstrap.servers={servers}", "read.only=true", "signal.enabled.channels=source,kafka"):
        assert line in refused.value.remedy


@pytest.mark.long
def test_silence_of_the_connector_is_no_success(shop: Shop) -> None:
    file = shop.file.with_name("silent.yaml")
    file.write_text(shop.file.read_text().replace('"connect"', '"debezium": {"topic.prefix": "silent"}, "unused"'))
    document = json.loads(file.read_text())
    del document["source"]["unused"]
    file.write_text(json.dumps(document))
    with pytest.raises(Unreachable, match="sent no notification to topic silent-notifications"):
        CliRunner().invoke(app, ["resync", str(file), "again.stock", "--timeout", "2"], catch_exceptions=False)
