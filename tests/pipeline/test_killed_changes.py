"""Streams that are killed after a change of a table's definition, and started again, follow it: silver has the rows of
the source, in tables with a key, without one, and with one at times."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession

from ingest.config import Pipeline, load
from ingest.connector import ddl_trigger
from ingest.lakehouse.accounts import Accounts
from ingest.lakehouse.quarantine import Quarantine
from ingest.pipeline.composition import bronze_of
from ingest.quality.accounting import audit
from ingest.spark.session import SHORT_LIVED
from ingest.stack import Stack
from tests.connector.records import Records, await_stream
from tests.pipeline.changing_table import cli, process, wait_for_commit

pytestmark = [pytest.mark.integration, pytest.mark.long]
SEED = 7
TABLES = ("keyed", "bag", "lost")
COLUMNS = "(id int NOT NULL, region text NOT NULL DEFAULT 'eu', name text, n int, note text)"
STEPS: tuple[dict[str, str], ...] = (
    dict.fromkeys(TABLES, "ADD grade int DEFAULT 5"),
    {"keyed": "DROP note", "bag": "DROP note", "lost": "DROP CONSTRAINT lost_pkey"},
    {"keyed": "DROP CONSTRAINT keyed_pkey, ADD PRIMARY KEY (id, region)", "bag": "ADD note int", "lost": "DROP note"},
    dict.fromkeys(TABLES, "ALTER n TYPE numeric(12, 2)"),
    {"keyed": "RENAME grade TO mark", "bag": "RENAME grade TO mark", "lost": "ADD PRIMARY KEY (id)"},
)
"""Table → what each step changes. Events show a rename as another column, so the last step needs the triggers."""
_STREAM_SECONDS = 1.5


class Killed:
    """The tables, their connector, and their pipeline."""

    def __init__(self, connection: psycopg.Connection[Any], records: Records, file: Path) -> None:
        self.connection, self.records, self.file = connection, records, file
        self.pipeline: Pipeline = load(str(file))
        self._random, self._last = random.Random(SEED), 100

    def change(self, actions: dict[str, str]) -> None:
        """Changes rows before and after each change of a definition. The connector has read those from before."""
        for table in TABLES:
            self._change_rows(table)
        self.records.await_connector()
        for table, action in actions.items():
            self.connection.execute(f"ALTER TABLE alters.{table} {action}".encode())
        for table in TABLES:
            self._change_rows(table)
        self.records.await_connector()

    def _change_rows(self, table: str) -> None:
        name, choose = sql.Identifier("alters", table), self._random
        self._last += 1
        old = [choose.randint(1, self._last - 1) for _ in range(3)]
        for text, values in (
            ("INSERT INTO {} (id, name) VALUES (%s, 'new')", [self._last]),
            ("UPDATE {} SET name = name || 'x', n = n + 1 WHERE id IN (%s, %s)", old[:2]),
            ("DELETE FROM {} WHERE id = %s", old[2:]),
        ):
            self.connection.execute(sql.SQL(text).format(name), values)

    def run_until_killed(self) -> None:
        """Runs the stream, and kills it soon after a commit."""
        layout, name = self.pipeline.layout, self.pipeline.name
        silver = [layout.silver(name, f"alters.{table}") for table in TABLES]
        with process(*cli("run", str(self.file))):
            wait_for_commit(Path(self._random.choice([layout.bronze(name), layout.tables, *silver])))
            time.sleep(self._random.random() * _STREAM_SECONDS)

    def require_rows_of_the_source(self, spark: SparkSession) -> None:
        for table in TABLES:
            with self.connection.cursor() as cursor:
                found = cursor.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier("alters", table)))
                names = [column.name for column in found.description or ()]
                expected = sorted([str(value) for value in row] for row in found.fetchall())
            silver = spark.read.format("delta").load(self.pipeline.layout.silver(self.pipeline.name, f"alters.{table}"))
            rows = silver.select(*names).collect()
            assert sorted([str(value) for value in row] for row in rows) == expected, table


@pytest.fixture(params=["told", "seen"])
def killed(request: pytest.FixtureRequest, stack: Stack, tmp_path: Path) -> Iterator[Killed]:
    """`told`: the source has the triggers."""
    name = f"killed{request.param}"
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    file = tmp_path / f"{name}.yaml"
    source = {"kafka": {"bootstrap.servers": stack.kafka.address}, "topic_pattern": rf"{name}\.alters\..*"}
    settings = {"source": source, "lakehouse": str(tmp_path / "lakehouse"), "spark": SHORT_LIVED}
    file.write_text(json.dumps(settings), encoding="utf-8")
    with psycopg.connect(make_conninfo(stack.postgres.dsn, dbname=name), autocommit=True) as connection:
        connection.execute(b"CREATE SCHEMA alters")
        for table in TABLES:
            connection.execute(f"CREATE TABLE alters.{table} {COLUMNS}".encode())
            key = "REPLICA IDENTITY FULL" if table == "bag" else f"ADD CONSTRAINT {table}_pkey PRIMARY KEY (id)"
            connection.execute(f"ALTER TABLE alters.{table} {key}".encode())
            connection.execute(
                f"INSERT INTO alters.{table} SELECT g, 'eu', 'first', g, 'x' FROM generate_series(1, 100) g".encode()
            )
        connection.execute(b"ALTER TABLE alters.lost REPLICA IDENTITY FULL")
        if request.param == "told":
            connection.execute(ddl_trigger().encode())
        config = stack.postgres.connector(name, schemas=["alters"])
        stack.connect.register(name, config | {"database.dbname": name, "poll.interval.ms": "50"})
        try:
            await_stream(connection, name)
            with Records(stack, name, connection) as records:
                yield Killed(connection, records, file)
        finally:
            stack.connect.delete(name)


@pytest.mark.timeout(1200)
def test_streams_killed_after_changes_of_tables_give_the_rows_of_the_source(
    killed: Killed, spark: SparkSession
) -> None:
    is_told = killed.pipeline.name.endswith("told")
    killed.run_until_killed()
    for actions in STEPS if is_told else STEPS[:-1]:
        killed.change(actions)
        killed.run_until_killed()
    with process(*cli("run", str(killed.file), "--available-now")) as running:
        assert running.wait(300) == 0
    killed.require_rows_of_the_source(spark)
    pipeline = killed.pipeline
    accounts = Accounts(spark, pipeline.layout.accounts, pipeline.name)
    assert accounts.set_aside() == {}
    assert not audit(bronze_of(spark, pipeline).rows(), accounts.rows()).problems
    assert Quarantine(spark, pipeline.layout.quarantine, pipeline.name).rows().count() == 0
