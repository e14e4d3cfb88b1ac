"""Silver equals the database after random changes of rows and definitions, through the real connector.

`FUZZ_CASES` tables change at the same time, and the connector lags behind them from time to time: then it sends events
with keys, defaults and columns of later definitions."""

from __future__ import annotations

import os
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random

import psycopg
import pytest
from confluent_kafka import Consumer, Message
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession

from ingest.backfill.refolding import Refolding
from ingest.backfill.replay import Case, Delivery, replay
from ingest.config import Pipeline
from ingest.connector import ddl_trigger
from ingest.loop.merge import Merge
from ingest.pipeline.composition import bronze_of, rules_of
from ingest.pipeline.retrying import Stop
from ingest.quality import compare_with_postgres
from ingest.stack import Stack
from tests.connector.records import await_stream, line
from tests.pipeline.random_ddl import SHOWN, TOLD, RandomTable
from tests.shop import pipeline

pytestmark = [pytest.mark.integration, pytest.mark.long]
SEED = int(os.environ.get("FUZZ_SEED", "1"))
TABLES = int(os.environ.get("FUZZ_CASES", "12"))
STATEMENTS = 25
_LAST = "done"
_SILENCE_SECONDS, _TIMEOUT_SECONDS = 4, 240
_DECODED_SECONDS = 0.5
DELIVERIES = {
    "one batch": Delivery(),
    "37 records a batch": Delivery(37),
    "shuffled": Delivery(211, SEED, any_order=True),
}


@dataclass(frozen=True)
class Captured:
    """`records`: a changelog file. `tables`: the tables as they ended."""

    dsn: str
    records: Path
    tables: list[RandomTable]


@pytest.fixture(scope="module", params=["told", "shown"])
def captured(
    request: pytest.FixtureRequest, stack: Stack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Captured]:
    name, is_told = f"ddl{request.param}", request.param == "told"
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    dsn = make_conninfo(stack.postgres.dsn, dbname=name)
    random = Random(SEED)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}; CREATE TABLE {name}.{_LAST} (id int PRIMARY KEY)".encode())
        if is_told:
            connection.execute(ddl_trigger().encode())
        tables = [RandomTable(connection, (name, f"t{n}"), Random(random.random())) for n in range(TABLES)]
        for table in tables:
            table.create()
            table.insert()
        config = stack.postgres.connector(name, schemas=[name]) | {"database.dbname": name, "poll.interval.ms": "50"}
        stack.connect.register(name, config)
        try:
            await_stream(connection, name)
            change(stack, name, tables, random, is_told)
            connection.execute(f"INSERT INTO {name}.{_LAST} VALUES (1)".encode())
            file = tmp_path_factory.mktemp(name) / "events.jsonl"
            file.write_text("".join(map(line, read(stack, name))), encoding="utf-8")
        finally:
            stack.connect.delete(name)
        yield Captured(dsn, file, tables)


def change(stack: Stack, name: str, tables: list[RandomTable], random: Random, is_told: bool) -> None:
    """Executes the statements. The connector of a source without triggers doesn't lag, and a row follows each change of
    a definition: nothing else shows it."""
    steps = STATEMENTS * len(tables)
    for number in range(steps):
        table = random.choice(tables)
        if is_told and number % (steps // 4) == len(tables):
            set_state(stack, name, "pause")
        before = len(table.statements)
        with table.connection.transaction():
            for _ in range(random.choice((1, 1, 3)) if is_told else 1):
                table.step(TOLD if is_told else SHOWN)
        if is_told and number % (steps // 4) == 4 * len(tables):
            set_state(stack, name, "resume")
        if not is_told and any(text.startswith("ALTER") for text in table.statements[before:]):
            table.insert_new()
            time.sleep(_DECODED_SECONDS)


def set_state(stack: Stack, name: str, state: str) -> None:
    """Pauses or resumes the connector."""
    request = urllib.request.Request(f"{stack.connect.url}/connectors/{name}/{state}", method="PUT")
    with urllib.request.urlopen(request, timeout=30):
        time.sleep(0.5)


def read(stack: Stack, name: str) -> list[Message]:
    """Returns the records of all topics of the connector, up to those that come soon after that of the last row."""
    consumer = Consumer(
        {
            "bootstrap.servers": stack.kafka.bootstrap_servers,
            "group.id": f"{name}-{time.monotonic_ns()}",
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 500,
        }
    )
    consumer.subscribe([rf"^{name}\..*"])
    found: list[Message] = []
    begin = heard = time.monotonic()
    try:
        while time.monotonic() < heard + _SILENCE_SECONDS or not has_ended(found):
            assert time.monotonic() < begin + _TIMEOUT_SECONDS, f"no record of {_LAST}, {len(found)} others"
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                found.append(message)
                heard = time.monotonic()
    finally:
        consumer.close()
    return sorted(found, key=lambda message: (message.timestamp()[1], message.topic(), message.offset()))


def has_ended(found: list[Message]) -> bool:
    return any((message.topic() or "").endswith(f".{_LAST}") for message in found)


def fold_anew(spark: SparkSession, pipeline: Pipeline) -> None:
    """Folds the tables again that messages which came late can't revise, as a run does."""
    with closing(Merge(spark, pipeline.name, pipeline.layout, rules_of(pipeline), bronze_of(spark, pipeline))) as merge:
        Refolding(spark, pipeline, Stop()).run(merge)


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_silver_equals_the_database(spark: SparkSession, captured: Captured, tmp_path: Path, delivery: str) -> None:
    case = Case("random", (captured.records,), None, tmp_path / "out")
    ((_, summary),) = replay(spark, [case], DELIVERIES[delivery], "delta")
    assert summary["set_aside"] == {}
    assert [found["code"] for found in summary["quarantine"]] == []
    fold_anew(spark, pipeline(tmp_path, name=case.name, lakehouse=str(case.out)))
    differing = {}
    for table in captured.tables:
        name = ".".join(table.name)
        rows = spark.read.format("delta").load(str(case.out / summary["tables"][name]["file"]))
        comparison = compare_with_postgres(spark, captured.dsn, name, rows)
        if not comparison.equal:
            differing[name] = (comparison, table.statements)
    assert not differing, f"{differing}\nFUZZ_SEED={SEED} FUZZ_CASES={TABLES}"
