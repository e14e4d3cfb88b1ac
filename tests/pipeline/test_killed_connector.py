"""A connector that is killed at any moment loses no event: silver equals its source afterwards."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from pyspark.sql import SparkSession
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from ingest.config import Pipeline, load
from ingest.lakehouse.silver import Silver
from ingest.names import Lakehouse
from ingest.pipeline.composition import Run
from ingest.quality import compare_with_postgres
from ingest.stack import Stack

pytestmark = [pytest.mark.integration, pytest.mark.long]
ROWS = 40_000
PADDING = "x" * 40
SECONDS = 600


@pytest.fixture
def table(stack: Stack, request: pytest.FixtureRequest) -> Iterator[str]:
    """Creates an empty table `NAME.rows`; its connector, slot and topics have the same name."""
    name: str = request.param
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
        connection.execute(f"CREATE TABLE {name}.rows (id bigint PRIMARY KEY, word text)")
    small = {"max.batch.size": "64", "max.queue.size": "128", "poll.interval.ms": "20"}
    stack.connect.register(
        name, stack.postgres.connector(name) | small | {"schema.include.list": name, "slot.retry.delay.ms": "500"}
    )
    yield name
    stack.connect.delete(name)


@pytest.fixture
def pipeline(stack: Stack, tmp_path: Path, table: str) -> Pipeline:
    file = tmp_path / f"{table}.yaml"
    file.write_text(
        f"source:\n  kafka: {{bootstrap.servers: '{stack.kafka.bootstrap_servers}'}}\n"
        f"  topics: [{table}.{table}.rows]\nlakehouse: {tmp_path}/lakehouse\n",
        encoding="utf-8",
    )
    return load(file)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("table", ["killed_in_copy"], indirect=True)
def test_connector_killed_during_a_copy_loses_no_row(
    table: str, pipeline: Pipeline, stack: Stack, spark: SparkSession
) -> None:
    """Rows that one COPY writes to a page share their position in the log."""
    with (
        psycopg.connect(stack.postgres.dsn) as connection,
        connection.cursor().copy(f"COPY {table}.rows FROM STDIN") as copy,
    ):
        for n in range(ROWS):
            copy.write_row((n, PADDING))
    for end in (stack.connect.kill, stack.connect.stop, stack.connect.kill):
        end_inside(stack, table, end)
        stack.connect.start()
    assert differences_at_the_end(spark, pipeline, stack, table) == ""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("table", ["killed_in_transaction"], indirect=True)
def test_connector_killed_during_a_transaction_loses_no_row(
    table: str, pipeline: Pipeline, stack: Stack, spark: SparkSession
) -> None:
    """The transaction begins before others that are read first, continues while the connector is down, and is split by
    the restart."""
    rows = sql_of_rows(table)
    with psycopg.connect(stack.postgres.dsn) as long, psycopg.connect(stack.postgres.dsn, autocommit=True) as short:
        long.execute(rows, {"first": 0, "last": ROWS // 2 - 1})
        short.execute(rows, {"first": -20, "last": -11})
        await_row(stack, table, -11)
        await_stored_offset(stack, table)
        stack.connect.kill()
        short.execute(rows, {"first": -10, "last": -1})
        long.execute(rows, {"first": ROWS // 2, "last": ROWS - 1})
        stack.connect.start()
        await_row(stack, table, -1)
        await_stored_offset(stack, table)
        stack.connect.stop()
        long.commit()
        stack.connect.start()
    for end in (stack.connect.kill, stack.connect.stop):
        end_inside(stack, table, end)
        stack.connect.start()
    assert differences_at_the_end(spark, pipeline, stack, table) == ""


def sql_of_rows(table: str) -> str:
    return f"INSERT INTO {table}.rows SELECT n, '{PADDING}' FROM generate_series(%(first)s::int, %(last)s) n"


def end_inside(stack: Stack, table: str, end: Callable[[], None]) -> None:
    """Kills the worker after it has stored an offset inside the rows 0 to ROWS - 1, before it has sent the last."""
    before = stack.connect.connectors.offsets(table)
    reached = max(last_row(stack, table), 0)
    for attempt in waiting(0.05):
        with attempt:
            assert last_row(stack, table) > reached
            assert stack.connect.connectors.offsets(table) != before
    end()
    assert last_row(stack, table) < ROWS - 1, "the last row was sent before the worker ended: more ROWS are needed"


def await_row(stack: Stack, table: str, row: int) -> None:
    for attempt in waiting(0.2):
        with attempt:
            assert last_row(stack, table) == row


def await_stored_offset(stack: Stack, table: str) -> None:
    """Returns once the worker would resume after the last record that it sent."""
    for attempt in waiting(0.2):
        with attempt:
            stored = [offset["lsn"] for offset in stack.connect.connectors.offsets(table)]
            assert stored
            assert stored[0] >= last_record(stack, table)["source"]["lsn"]


def last_row(stack: Stack, table: str) -> int:
    """Returns the id in the topic's last record; -1000 if there is no topic yet."""
    try:
        row: int = last_record(stack, table)["after"]["id"]
    except KafkaException:
        return -1000
    return row


def last_record(stack: Stack, table: str) -> dict[str, Any]:
    """Returns the envelope of the topic's last record."""
    consumer = Consumer({"bootstrap.servers": stack.kafka.bootstrap_servers, "group.id": "last"})
    try:
        topic = f"{table}.{table}.rows"
        end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=120)[1]
        consumer.assign([TopicPartition(topic, 0, end - 1)])
        message = consumer.poll(120)
        assert message is not None
        assert message.error() is None
        value = message.value()
        assert value is not None
        envelope: dict[str, Any] = json.loads(value)["payload"]
        return envelope
    finally:
        consumer.close()


def waiting(pause: float) -> Retrying:
    return Retrying(
        retry=retry_if_exception_type(AssertionError),
        stop=stop_after_delay(SECONDS),
        wait=wait_fixed(pause),
        reraise=True,
    )


def differences_at_the_end(spark: SparkSession, pipeline: Pipeline, stack: Stack, table: str) -> str:
    """Returns the differences of silver and its source after the last row has arrived."""
    await_row(stack, table, ROWS - 1)
    run = Run(spark, pipeline)
    silver = Silver(spark, Lakehouse(pipeline.lakehouse).silver(pipeline.name, f"{table}.rows"))
    deadline = time.monotonic() + SECONDS
    while not run.step().idle and time.monotonic() < deadline:
        continue
    compared = compare_with_postgres(spark, stack.postgres.dsn, f"{table}.rows", silver.rows())
    return "" if compared.equal else str(compared)
