"""Postgres values that few types can hold pass through Debezium into silver, and stop no connector for good."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from typer.testing import CliRunner

from ingest.cli import app
from ingest.config import Pipeline, load
from ingest.lakehouse.quarantine import Quarantine
from ingest.lakehouse.silver import Silver
from ingest.pipeline.composition import Run
from ingest.stack import Stack
from tests.connector.topics import await_ends, waiting

pytestmark = [pytest.mark.integration, pytest.mark.long]
DDL = """
    CREATE SCHEMA odd;
    CREATE TABLE odd.times (
        id int PRIMARY KEY, ts timestamp, ts3 timestamp(3), tz timestamptz, d date, t time, f8 float8, f4 float4,
        ds date[], zs timestamptz[]
    );
    CREATE TABLE odd.numbers (id int PRIMARY KEY, exact numeric(10, 2), free numeric, several numeric(10, 2)[],
                              need numeric NOT NULL);
    INSERT INTO odd.numbers VALUES (0, 1.5, 1.5, '{1}', 1);
"""
TIMES = {
    1: ("infinity", "infinity", "infinity", "infinity", "24:00", "Infinity", "NaN", "{infinity}",
        "{infinity,-infinity}"),
    2: ("-infinity", "-infinity", "-infinity", "-infinity", "24:00", "-Infinity", "-Infinity", "{-infinity}", None),
    3: ("294276-12-31 23:59:59.999999", "294276-12-31 23:59:59.999", "294276-12-31 23:59:59.999999+00",
        "5874897-12-31", "00:00:00.000001", "NaN", "Infinity", "{5874897-12-31}", "{294276-12-31 23:59:59.999999+00}"),
    4: ("0044-03-15 12:00 BC", "0044-03-15 12:00 BC", "0044-03-15 12:00+00 BC", "0044-03-15 BC", "23:59:59.999999",
        "1.5", "1.5", None, None),
}  # fmt: skip
FIRST, LAST = "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"
FIRST_ZONED = "0001-01-03 00:00:00"
STORED = {
    1: (LAST, LAST, LAST, "9999-12-31", "24:00:00", "Infinity", "NaN", "[9999-12-31]", f"[{LAST}, {FIRST_ZONED}]"),
    2: (FIRST, FIRST, FIRST_ZONED, "0001-01-01", "24:00:00", "-Infinity", "-Infinity", "[0001-01-01]", None),
    3: (LAST, LAST, LAST, "9999-12-31", "00:00:00.000001", "NaN", "Infinity", "[9999-12-31]", f"[{LAST}]"),
    4: (FIRST, FIRST, FIRST_ZONED, "0001-01-01", "23:59:59.999999", "1.5", "1.5", None, None),
}
STREAMED = 10
"""Added to the id of rows that are inserted after the snapshot."""


def test_special_values_arrive_unchanged(stack: Stack, spark: SparkSession, tmp_path: Path) -> None:
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as connection:
        connection.execute(DDL)
        try:
            send_times(connection, stack)
            send_numbers(connection, stack)
        finally:
            stack.connect.delete("times")
            stack.connect.delete("numbers")
    pipeline = reading(stack, tmp_path)
    run = Run(spark, pipeline)
    while not run.step().idle:
        continue
    stored = texts(spark, pipeline, "odd.times")
    assert stored == {number + added: row for number, row in STORED.items() for added in (0, STREAMED)}
    assert texts(spark, pipeline, "odd.numbers") == {
        0: ("1.50", "1.5", "[1.00]", "1"),
        1: ("12.50", "NaN", "[1.00, 2.50]", "Infinity"),
        3: (None, "-Infinity", None, "12345.678"),
    }
    kept = Quarantine(spark, pipeline.layout.quarantine, pipeline.name).rows().collect()
    assert [(row["table"], row["code"]) for row in kept] == [("odd.numbers", "undecodable")]
    assert "exact" in kept[0]["reason"]


def send_times(connection: psycopg.Connection[Any], stack: Stack) -> None:
    """Writes each row once before the snapshot and once after it."""
    insert = f"INSERT INTO odd.times VALUES ({', '.join(['%s'] * 10)})"
    for number, values in TIMES.items():
        connection.execute(insert, (number, *values))
    stack.connect.register("times", stack.postgres.connector("times", ["odd.times"]))
    await_ends(stack, {"times.odd.times": len(TIMES)})
    for number, values in TIMES.items():
        connection.execute(insert, (number + STREAMED, *values))
    # A snapshot of Debezium loses the era of a date: the row is sent again, as docs/data-engineer/connector.md says.
    connection.execute("UPDATE odd.times SET d = d WHERE d < '0001-01-01' AND isfinite(d) AND id < %s", (STREAMED,))
    await_ends(stack, {"times.odd.times": 2 * len(TIMES) + 1})
    assert not stack.connect.status_of("times").failed


def send_numbers(connection: psycopg.Connection[Any], stack: Stack) -> None:
    """Writes NaN and Infinity, which stop the recipe's connector; it continues with numbers as text."""
    stack.connect.register("numbers", recipe_of_numbers())
    await_ends(stack, {"numbers.odd.numbers": 1})
    connection.execute("INSERT INTO odd.numbers VALUES (1, 12.5, 'NaN', '{1,2.5}', 'Infinity')")
    connection.execute("INSERT INTO odd.numbers VALUES (2, 'NaN', 1, NULL, 1), (3, NULL, '-Infinity', NULL, 12345.678)")
    for attempt in waiting():
        with attempt:
            assert stack.connect.status_of("numbers").failed
    stack.connect.register("numbers", recipe_of_numbers("--numbers-as-text"))
    await_ends(stack, {"numbers.odd.numbers": 4})


def recipe_of_numbers(*options: str) -> dict[str, str]:
    arguments = ["connector", "recipe", "postgres", "--name", "numbers", "--table", "odd.numbers", "--json", *options]
    config: dict[str, str] = json.loads(CliRunner().invoke(app, arguments, catch_exceptions=False).stdout)["config"]
    return config


def reading(stack: Stack, folder: Path) -> Pipeline:
    file = folder / "odd.yaml"
    file.write_text(
        f"source:\n  kafka: {{bootstrap.servers: '{stack.kafka.bootstrap_servers}'}}\n"
        f"  topics: [times.odd.times, numbers.odd.numbers]\nlakehouse: {folder}/lakehouse\n",
        encoding="utf-8",
    )
    return load(file)


def texts(spark: SparkSession, pipeline: Pipeline, table: str) -> dict[int, tuple[str | None, ...]]:
    """Returns the rows of a silver table by id, each value as Spark writes it."""
    rows = Silver(spark, pipeline.layout.silver(pipeline.name, table)).rows()
    names = [name for name in rows.columns if name != "id" and not name.startswith("_")]
    found = rows.select("id", *(F.col(name).cast("string") for name in names)).collect()
    return {row["id"]: tuple(row[name] for name in names) for row in found}
