"""Debezium writes Avro by a real converter: silver equals the database; a stream waits while the registry is away."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from ingest.config import Pipeline, load
from ingest.errors import EXIT_TRANSIENT, SourceRefused
from ingest.lakehouse.quarantine import Quarantine
from ingest.pipeline.composition import Run
from ingest.sources.kafka_admin import KafkaAdmin
from ingest.stack import Stack
from tests.pipeline.changing_table import ROOT, cli
from tests.pipeline.test_broker_restart import read_until, stream
from tests.registry.converters import AVRO

pytestmark = [pytest.mark.integration, pytest.mark.long]
TABLE = "registered.item"
DDL = """
    CREATE SCHEMA registered;
    CREATE TABLE registered.item (
        id int, part uuid DEFAULT '7c1f0c1e-0000-4000-8000-000000000001', "a b" numeric(20, 4), free numeric,
        day date, at timestamptz, local timestamp(3), clock time, tags text[], bits bit(9), raw bytea, doc jsonb,
        large text, PRIMARY KEY (id, part));
    ALTER TABLE registered.item ALTER large SET STORAGE EXTERNAL;
    INSERT INTO registered.item (id, "a b", free, day, at, local, clock, tags, bits, raw, doc, large)
    SELECT g, g / 3.0, g * 1e20, date '1969-12-31' + g, now(), now(), now()::time, ARRAY['x', NULL], 5::bit(9), 'ab',
        '{"n": 1.50}', repeat(md5(g::text), 300) FROM generate_series(1, 9) g;
    INSERT INTO registered.item (id) VALUES (10);
"""
STATEMENTS = (
    'UPDATE registered.item SET "a b" = "a b" + 1 WHERE id < 4',
    "DELETE FROM registered.item WHERE id = 2",
    "UPDATE registered.item SET id = 20 WHERE id = 3",
    "ALTER TABLE registered.item ADD more bigint",
    "UPDATE registered.item SET more = 9007199254740993, large = NULL WHERE id IN (4, 10)",
    "UPDATE registered.item SET day = NULL WHERE id = 5",
)
NAMES = {"field.name.adjustment.mode": "avro_unicode", "schema.name.adjustment.mode": "avro_unicode"}
DEADLINE_SECONDS = 120.0
AWAY_SECONDS = float(os.environ.get("INGEST_REGISTRY_AWAY", "80"))
"""For how long the registry does not answer: several attempts, with pauses that grow."""


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("registered") / "stack"
    with Stack(folder, parts=("postgres", "kafka", "connect", "registry")) as running:
        yield running


def converter(stack: Stack) -> dict[str, str]:
    settings = {
        "": AVRO,
        ".apicurio.registry.url": stack.registry.core_url,
        ".apicurio.registry.auto-register": "true",
        ".apicurio.registry.as-confluent": "true",
        ".apicurio.registry.use-id": "contentId",
        ".apicurio.registry.headers.enabled": "false",
    }
    return {f"{part}.converter{name}": value for part in ("key", "value") for name, value in settings.items()}


def pipeline_of(stack: Stack, folder: Path, retry: str) -> Pipeline:
    file = folder / "registered.yaml"
    source = {
        "kafka": {"bootstrap.servers": stack.kafka.address},
        "topics": [f"avro.{TABLE}"],
        "registry": {"url": stack.registry.url},
    }
    settings = {"source": source, "lakehouse": str(folder / "lakehouse"), "retry": {"give_up_after": retry}}
    file.write_text(json.dumps(settings), encoding="utf-8")
    pipeline: Pipeline = load(str(file))
    retrying = Retrying(retry=retry_if_exception_type(SourceRefused), stop=stop_after_delay(90), wait=wait_fixed(0.5))
    retrying(KafkaAdmin(pipeline.source.kafka).topics, pipeline.source.topics, None)
    return pipeline


COLUMNS = 'id, part::text, "a b", free::text, day, at, local, tags, doc::text, large'


@pytest.mark.timeout(900 + AWAY_SECONDS)
def test_avro_of_debezium_gives_the_rows_of_the_database(services: Stack, spark: SparkSession, tmp_path: Path) -> None:
    database = psycopg.connect(services.postgres.dsn, autocommit=True)
    database.execute(DDL)
    config = services.postgres.connector("avro") | {"table.include.list": TABLE} | NAMES | converter(services)
    services.connect.register("avro", config)
    pipeline = pipeline_of(services, tmp_path, "0s")
    _wait_for(spark, pipeline, database)
    for statement in STATEMENTS:
        database.execute(statement)
    _wait_for(spark, pipeline, database)
    assert Quarantine(spark, pipeline.layout.quarantine, pipeline.name).rows().count() == 0

    # A new schema, which this pipeline has not met, while the registry does not answer.
    before = _end(pipeline)
    database.execute(
        "ALTER TABLE registered.item ADD latest text; UPDATE registered.item SET latest = 'x' WHERE id > 6"
    )
    while _end(pipeline) < before + 4:
        time.sleep(0.2)
    process = services.registry.running
    assert process is not None
    process.suspend()
    try:
        command = [sys.executable, *cli("run", str(tmp_path / "registered.yaml"), "--available-now")]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, cwd=ROOT)
        assert ended.returncode == EXIT_TRANSIENT, ended.stderr
        assert services.registry.url in ended.stderr
        pipeline = pipeline_of(services, tmp_path, "1h")
        with stream(tmp_path / "registered.yaml") as running:
            assert running.stdout is not None
            first = waiting = read_until(running.stdout, "waiting")
            away = time.monotonic() + AWAY_SECONDS
            while time.monotonic() < away:
                waiting = read_until(running.stdout, "waiting")
                assert services.registry.url in waiting["problem"]
                assert waiting["since"] == first["since"]
                assert waiting["failures"] > first["failures"]
            rows = spark.read.format("delta").load(pipeline.layout.silver(pipeline.name, TABLE))
            assert "latest" not in rows.columns
            process.resume()
            read_until(running.stdout, "resumed")
            read_until(running.stdout, "captured")
            running.send_signal(signal.SIGTERM)
            assert running.wait(120) == 0
    finally:
        process.resume()
    _wait_for(spark, pipeline, database)
    rows = spark.read.format("delta").load(pipeline.layout.silver(pipeline.name, TABLE))
    assert {row["latest"] for row in rows.where("id > 6").collect()} == {"x"}
    assert Quarantine(spark, pipeline.layout.quarantine, pipeline.name).rows().count() == 0


def _end(pipeline: Pipeline) -> int:
    admin = KafkaAdmin(pipeline.source.kafka)
    return sum(sum(ends.values()) for ends in admin.end_offsets(pipeline.source.topics or ()).values())


def _wait_for(spark: SparkSession, pipeline: Pipeline, database: psycopg.Connection[Any]) -> None:
    """Merges until the table equals that of the database."""
    expected = sorted(map(_text, database.execute(f"SELECT {COLUMNS} FROM registered.item").fetchall()))
    path, found = pipeline.layout.silver(pipeline.name, TABLE), list[tuple[str, ...]]()
    deadline = time.monotonic() + DEADLINE_SECONDS
    with Run(spark, pipeline) as run:
        while found != expected:
            assert time.monotonic() < deadline, (found, expected)
            if run.step().idle:
                time.sleep(0.5)
            if Path(path).exists():
                names = ("id", "part", "a_u0020b", "free", "day", "at", "local", "tags", "doc", "large")
                rows = spark.read.format("delta").load(path).select(*names).collect()
                found = sorted(map(_text, map(tuple, rows)))


def _text(row: tuple[Any, ...]) -> tuple[str, ...]:
    """Returns a row's values as text: times as Postgres' client gives them."""
    return tuple(str(one.astimezone() if hasattr(one, "astimezone") and n == 5 else one) for n, one in enumerate(row))
