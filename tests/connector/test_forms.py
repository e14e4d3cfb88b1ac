"""The real connector's records in each of the forms that Debezium can write give the rows of the database."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from ingest.changelog.envelope import CHANGES
from ingest.changelog.forms import FORM_HEADER
from ingest.config import Pipeline, load
from ingest.errors import SourceRefused
from ingest.lakehouse.quarantine import Quarantine
from ingest.pipeline.composition import Run, bronze_of
from ingest.sources.kafka_admin import KafkaAdmin
from ingest.stack import Stack

pytestmark = [pytest.mark.integration, pytest.mark.long]
TABLE = "forms.item"
UNWRAP = {"transforms": "unwrap", "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState"}
MODE, FIELDS = "transforms.unwrap.delete.tombstone.handling.mode", "transforms.unwrap.add.fields"
ADDED = {FIELDS: "op,table,schema,lsn,sequence,source.ts_ms"}
CLOUD = {"value.converter": "io.debezium.converters.CloudEventsConverter"}
CONNECTORS: dict[str, tuple[dict[str, str], str | None]] = {
    "form_debezium": ({}, None),
    "form_rewritten": (UNWRAP | ADDED | {MODE: "rewrite-with-tombstone"}, "unwrapped"),
    "form_deleted": (UNWRAP | {MODE: "rewrite"}, "unwrapped"),
    "form_bare": (UNWRAP, "upsert"),
    "form_cloud": (CLOUD, "cloudevents"),
    "form_cloud_plain": (CLOUD | {"value.converter.json.schemas.enable": "false"}, "cloudevents"),
}
"""Connector → its settings, and the form that its records have then."""
DDL = """
    CREATE SCHEMA forms;
    CREATE TABLE forms.item (id int PRIMARY KEY, price numeric(20,4), at timestamptz, large text, payload text);
    ALTER TABLE forms.item ALTER large SET STORAGE EXTERNAL;
    INSERT INTO forms.item
    SELECT g, g / 3.0, now(), repeat(md5(g::text), 300), '"payload":{' FROM generate_series(1, 9) g;
"""
STATEMENTS = """
    UPDATE forms.item SET price = price + 1 WHERE id < 4;
    DELETE FROM forms.item WHERE id = 2;
    UPDATE forms.item SET id = 20 WHERE id = 3;
    INSERT INTO forms.item VALUES (2, 1234567890123456.7891, now(), '"data":1}', NULL), (21, NULL, NULL, NULL, NULL);
    DELETE FROM forms.item WHERE id IN (4, 21);
    UPDATE forms.item SET payload = NULL WHERE id = 5;
"""
DECLARED = {"price": "decimal_from_base64(20,4)", "at": "timestamp_tz"}
"""Types where the records have no schema."""
DEADLINE_SECONDS = 120.0


def pipeline_of(stack: Stack, name: str, folder: Path) -> Pipeline:
    topic, file = f"{name}.{TABLE}", folder / f"{name}.yaml"
    source = {"kafka": {"bootstrap.servers": stack.kafka.address}, "topics": [topic], "topic_tables": {topic: TABLE}}
    tables = {TABLE: {"columns": DECLARED}} if name == "form_cloud_plain" else {}
    settings = {"source": source, "lakehouse": str(folder / name), "tables": tables}
    file.write_text(json.dumps(settings), encoding="utf-8")
    pipeline: Pipeline = load(str(file))
    retrying = Retrying(retry=retry_if_exception_type(SourceRefused), stop=stop_after_delay(90), wait=wait_fixed(0.5))
    retrying(KafkaAdmin(pipeline.source.kafka).topics, pipeline.source.topics, None)
    return pipeline


@pytest.mark.timeout(600)
def test_every_form_gives_the_rows_of_the_database(stack: Stack, spark: SparkSession, tmp_path: Path) -> None:
    database = psycopg.connect(stack.postgres.dsn, autocommit=True)
    database.execute(DDL)
    for name, (settings, _) in CONNECTORS.items():
        stack.connect.register(name, stack.postgres.connector(name) | {"table.include.list": TABLE} | settings)
    pipelines = {name: pipeline_of(stack, name, tmp_path) for name in CONNECTORS}
    for pipeline in pipelines.values():
        _wait_for(spark, pipeline, database)
    for statement in filter(str.strip, STATEMENTS.split(";")):
        database.execute(statement)
    for name, pipeline in pipelines.items():
        _wait_for(spark, pipeline, database)
        changes = bronze_of(spark, pipeline).rows().where(F.col("op").isin(*CHANGES))
        marks = F.filter("headers", lambda one: one["key"] == FORM_HEADER)
        forms = changes.select(F.get(marks, F.lit(0))["value"].cast("string")).distinct().collect()
        assert [row[0] for row in forms] == [CONNECTORS[name][1]], name
        assert Quarantine(spark, pipeline.layout.quarantine, name).rows().count() == 0, name
        columns = spark.read.format("delta").load(pipeline.layout.silver(name, TABLE)).columns
        assert [c for c in columns if c.startswith("__")] == [], name


def _wait_for(spark: SparkSession, pipeline: Pipeline, database: psycopg.Connection[Any]) -> None:
    """Merges until the table equals that of the database."""
    columns = ("id", "price", "at", "large", "payload")
    expected = sorted(database.execute("SELECT id, price, at, large, payload FROM forms.item").fetchall())
    path, found = pipeline.layout.silver(pipeline.name, TABLE), list[tuple[Any, ...]]()
    deadline = time.monotonic() + DEADLINE_SECONDS
    with Run(spark, pipeline) as run:
        while found != expected:
            assert time.monotonic() < deadline, (pipeline.name, found, expected)
            if run.step().idle:
                time.sleep(0.5)
            if Path(path).exists():
                rows = spark.read.format("delta").load(path).select(*columns).collect()
                found = sorted((r["id"], r["price"], _aware(r["at"]), r["large"], r["payload"]) for r in rows)


def _aware(at: Any) -> Any:
    """Returns a time as Postgres' client does."""
    return None if at is None else at.astimezone()
