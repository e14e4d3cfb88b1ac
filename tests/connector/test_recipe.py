"""A connector with the recipe's configuration loses nothing: NULL, TRUNCATE, unusual types, a quiet slot."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from ingest.cli import app
from ingest.config import Pipeline, load
from ingest.errors import EXIT_USER, ConfigError, SourceRefused
from ingest.lakehouse.silver import Silver
from ingest.names import Lakehouse
from ingest.pipeline.composition import Run
from ingest.stack import Stack
from tests.connector.topics import await_ends, waiting

pytestmark = pytest.mark.integration
NAME = "recipe"
DDL = """
    CREATE SCHEMA recipe;
    CREATE TYPE recipe.place AS (street text, number int);
    CREATE TABLE recipe.orders (
        id int PRIMARY KEY, word text DEFAULT 'none', total numeric(10, 2) DEFAULT 7.5, note text DEFAULT 'x' NOT NULL,
        takes interval, lives_at recipe.place, free numeric, since timestamp DEFAULT '2024-01-01'
    );
    CREATE TABLE recipe.emptied (id int PRIMARY KEY);
    INSERT INTO recipe.orders VALUES (1, NULL, NULL, 'snapshot', '1 month', '(Main,1)', 1.5, NULL);
    INSERT INTO recipe.emptied VALUES (1), (2);
"""


@pytest.fixture(scope="module")
def registered(stack: Stack) -> Iterator[str]:
    """Registers the connector with the command's output; the worker resolves the references to the database."""
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as connection:
        connection.execute(DDL)
    tables = ("--table", "recipe.orders", "--table", "recipe.emptied")
    written = CliRunner().invoke(app, ["connector", "recipe", "postgres", "--name", NAME, *tables, "--json"])
    document = json.loads(written.stdout)
    assert "${env:POSTGRES_PASSWORD}" in document["config"].values()
    stack.connect.register(document["name"], document["config"] | {"heartbeat.interval.ms": "500"})
    await_ends(stack, {f"{NAME}.recipe.orders": 1, f"{NAME}.recipe.emptied": 2})  # the snapshot
    yield NAME
    stack.connect.delete(NAME)


@pytest.fixture
def pipeline(stack: Stack, tmp_path: Path, registered: str) -> Pipeline:
    file = tmp_path / "recipe.yaml"
    file.write_text(
        f"source:\n  kafka: {{bootstrap.servers: '{stack.kafka.bootstrap_servers}'}}\n"
        f"  topic_pattern: {registered}\\.recipe\\..*\nlakehouse: {tmp_path}/lakehouse\n",
        encoding="utf-8",
    )
    return load(file)


@pytest.mark.long
def test_nulls_and_truncates_arrive(pipeline: Pipeline, stack: Stack, spark: SparkSession, registered: str) -> None:
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO recipe.orders VALUES (2, NULL, NULL, 'streamed', '1 year 2 mons', "
            "'(\"A b\",)', 12345.678, NULL)"
        )
        connection.execute("UPDATE recipe.orders SET word = NULL, note = 'changed' WHERE id = 1")
        connection.execute("INSERT INTO recipe.orders (id) VALUES (3)")
        connection.execute("TRUNCATE recipe.emptied")
        connection.execute("INSERT INTO recipe.emptied VALUES (9)")
    await_ends(stack, {f"{registered}.recipe.orders": 4, f"{registered}.recipe.emptied": 4})
    run = Run(spark, pipeline)
    while not run.step().idle:
        continue
    orders = rows(spark, pipeline, "recipe.orders")
    plain = {row["id"]: (row["word"], row["total"], row["note"], str(row["since"])) for row in orders}
    assert plain[1] == (None, None, "changed", "None")
    assert plain[2] == (None, None, "streamed", "None")
    assert (plain[3][0], str(plain[3][1]), plain[3][2], plain[3][3]) == ("none", "7.50", "x", "2024-01-01 00:00:00")
    assert {row["id"]: row["takes"] for row in orders} == {1: "P0Y1M0DT0H0M0S", 2: "P1Y2M0DT0H0M0S", 3: None}
    assert {row["id"]: row["lives_at"] for row in orders} == {1: b"(Main,1)", 2: b'("A b",)', 3: None}
    assert {row["id"]: row["free"] for row in orders} == {1: "1.5", 2: "12345.678", 3: None}
    assert [row["id"] for row in rows(spark, pipeline, "recipe.emptied")] == [9]


def rows(spark: SparkSession, pipeline: Pipeline, table: str) -> list[dict[str, Any]]:
    silver = Silver(spark, Lakehouse(pipeline.lakehouse).silver(pipeline.name, table))
    return [row.asDict() for row in silver.rows().collect()]


def test_heartbeat_advances_the_slot(registered: str, stack: Stack) -> None:
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS public.unread (v text)")
        for _ in range(3):
            connection.execute("INSERT INTO public.unread SELECT repeat('x', 1000) FROM generate_series(1, 100)")
            written = connection.execute("SELECT pg_current_wal_lsn()").fetchone()
            assert written is not None
            for attempt in waiting():
                with attempt:
                    moved = connection.execute(
                        "SELECT confirmed_flush_lsn >= %s::pg_lsn FROM pg_replication_slots WHERE slot_name = %s",
                        (written[0], registered),
                    ).fetchone()
                    assert moved == (True,)


@pytest.fixture
def judged(stack: Stack, tmp_path: Path, registered: str) -> Path:
    """Returns a pipeline file that names the connector."""
    file = tmp_path / "judged.yaml"
    file.write_text(
        f"source:\n  kafka: {{bootstrap.servers: '{stack.kafka.bootstrap_servers}'}}\n"
        f"  topic_pattern: {registered}\\.recipe\\..*\n"
        f"  connect: {{url: '{stack.connect.url}', connector: {registered}}}\nlakehouse: {tmp_path}/lakehouse\n"
        "tables: {recipe.orders: {primary_key: [id], columns: {word: string}}}\n",
        encoding="utf-8",
    )
    return file


def checked(file: Path, *options: str) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(app, ["check", str(file), "--live", "--json", *options])
    return result.exit_code, json.loads(result.stdout)["live"]


def test_check_accepts_the_recipe(judged: Path) -> None:
    code, live = checked(judged)
    assert [risk for risk in live["risks"] if risk["loses"]] == []
    assert (live["connector"]["state"], live["problems"], code) == ("RUNNING", [], 0)
    # The recipe was written without a pipeline's file, so that it names no brokers for signals.
    assert [risk["setting"] for risk in live["risks"]] == ["signal.enabled.channels", "ingest_ddl"]
    assert live["connector"]["unread_topics"] == []
    shown = CliRunner().invoke(app, ["check", str(judged), "--live"])
    assert "None of its settings loses data." in shown.stdout


def test_check_names_the_losses_of_default_settings(judged: Path, stack: Stack) -> None:
    """The connector needn't run: only its configuration is checked."""
    defaults = {k: v for k, v in stack.postgres.connector("lossy").items() if k.startswith(("connector.", "database."))}
    defaults |= {"topic.prefix": "lossy", "plugin.name": "pgoutput", "slot.name": "lossy", "slot.drop.on.stop": "true"}
    stack.connect.connectors.put("lossy", defaults)
    try:
        file = judged.with_name("lossy.yaml")
        text = judged.read_text().replace("connector: recipe}", "connector: lossy, accept: [slot.drop.on.stop]}")
        file.write_text(text)
        code, live = checked(file)
        shown = CliRunner().invoke(app, ["check", str(file), "--live"], env={"COLUMNS": "200"}).stdout
    finally:
        stack.connect.delete("lossy")
    losing = {risk["setting"] for risk in live["risks"] if risk["loses"] and not risk["accepted"]}
    assert losing == {
        "skipped.operations",
        "event.converting.failure.handling.mode",
        "interval.handling.mode",
        "include.unknown.datatypes",
        "key.converter",
        "value.converter",
    }
    assert [risk["setting"] for risk in live["risks"] if risk["accepted"]] == ["slot.drop.on.stop"]
    assert code == 1
    assert stack.postgres.password not in shown
    assert "skipped.operations=none" in shown


def test_absent_connector_is_refused_with_the_nearest_name(judged: Path) -> None:
    judged.write_text(judged.read_text().replace("connector: recipe}", "connector: recpie}"))
    with pytest.raises(SourceRefused, match="no connector 'recpie'") as refused:
        CliRunner().invoke(app, ["check", str(judged), "--live"], catch_exceptions=False)
    assert "did you mean 'recipe'?" in refused.value.remedy


def test_check_reports_a_failed_connector(judged: Path, stack: Stack) -> None:
    config = stack.postgres.connector("broken", ["recipe.orders"])
    stack.connect.connectors.put(
        "broken", config | {"publication.autocreate.mode": "disabled", "publication.name": "absent"}
    )
    judged.write_text(judged.read_text().replace("connector: recipe}", "connector: broken}"))
    try:
        for attempt in waiting():
            with attempt:
                assert stack.connect.status_of("broken").failed
        with pytest.raises(SourceRefused, match=r"connector 'broken' has failed \(.*Exception\)") as refused:
            CliRunner().invoke(app, ["check", str(judged), "--live"], catch_exceptions=False)
    finally:
        stack.connect.delete("broken")
    assert refused.value.exit_code == EXIT_USER
    assert "log" in refused.value.remedy


def test_check_refuses_declarations_that_events_contradict(judged: Path) -> None:
    judged.write_text(judged.read_text().replace("primary_key: [id]", "primary_key: [idd]"))
    with pytest.raises(ConfigError, match="no column 'idd': did you mean 'id'"):
        CliRunner().invoke(app, ["check", str(judged), "--live"], catch_exceptions=False)
