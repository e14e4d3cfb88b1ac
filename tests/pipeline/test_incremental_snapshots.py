"""Ad-hoc snapshots by the real connector during open transactions: silver ends equal to the database."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from ingest.config import Pipeline, load
from ingest.errors import SourceRefused
from ingest.pipeline.composition import Run
from ingest.sources.kafka_admin import KafkaAdmin
from ingest.stack import Stack

pytestmark = [pytest.mark.integration, pytest.mark.long]
NAME = "reads"
DDL = """
    CREATE SCHEMA reads;
    CREATE TABLE reads.stock (id int PRIMARY KEY, qty int);
    CREATE TABLE reads.signals (id varchar(42) PRIMARY KEY, type varchar(32), data varchar(2048));
    INSERT INTO reads.stock SELECT g, 0 FROM generate_series(1, 9) g;
"""
DEADLINE_SECONDS = 90.0


class Shop:
    def __init__(self, stack: Stack, spark: SparkSession, folder: Path) -> None:
        self.dsn = stack.postgres.dsn
        self.database = psycopg.connect(self.dsn, autocommit=True)
        self.database.execute(DDL)
        more = {"signal.data.collection": "reads.signals", "incremental.snapshot.chunk.size": "4"}
        tables = {"table.include.list": "reads.stock,reads.signals"}
        stack.connect.register(NAME, stack.postgres.connector(NAME) | tables | more)
        file = folder / "reads.yaml"
        source = {"kafka": {"bootstrap.servers": stack.kafka.address}, "topics": ["reads.reads.stock"]}
        file.write_text(json.dumps({"source": source, "lakehouse": str(folder / "lakehouse")}), encoding="utf-8")
        self.pipeline: Pipeline = load(str(file))
        self._spark = spark
        retrying = Retrying(
            retry=retry_if_exception_type(SourceRefused), stop=stop_after_delay(60), wait=wait_fixed(0.5)
        )
        retrying(KafkaAdmin(self.pipeline.source.kafka).topics, self.pipeline.source.topics, None)

    def open(self, statement: str) -> psycopg.Connection[Any]:
        """Opens a transaction that has written and is not committed yet."""
        session = psycopg.connect(self.dsn)
        session.execute(statement)
        return session

    def signal(self, kind: str) -> None:
        snapshot_request = json.dumps({"data-collections": ["reads.stock"], "type": kind})
        values = (str(uuid.uuid4()), "execute-snapshot", snapshot_request)
        self.database.execute("INSERT INTO reads.signals VALUES (%s, %s, %s)", values)

    def change_unlogged(self, statement: str) -> None:
        """Makes a change that never reaches the log's readers."""
        self.database.execute("ALTER PUBLICATION reads DROP TABLE reads.stock")
        self.database.execute(statement)
        self.database.execute("ALTER PUBLICATION reads ADD TABLE reads.stock")

    def in_database(self) -> dict[int, int]:
        return dict(self.database.execute("SELECT id, qty FROM reads.stock").fetchall())

    def in_silver(self) -> dict[int, int]:
        path = self.pipeline.layout.silver(NAME, "reads.stock")
        if not Path(path).exists():
            return {}
        return {r["id"]: r["qty"] for r in self._spark.read.format("delta").load(path).collect()}

    def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        run = Run(self._spark, self.pipeline)
        while not holds():
            assert time.monotonic() < deadline, (self.in_silver(), self.in_database())
            if run.step().idle:
                time.sleep(0.5)


@pytest.mark.timeout(400)
def test_snapshot_reads_repair_rows_and_open_transactions_win(
    stack: Stack, spark: SparkSession, tmp_path: Path
) -> None:
    shop = Shop(stack, spark, tmp_path)
    shop.until(lambda: shop.in_silver() == shop.in_database())
    for kind, lost in (("incremental", 7), ("blocking", 8)):
        shop.change_unlogged(f"UPDATE reads.stock SET qty = qty + 1000 WHERE id = {lost}")
        first = shop.open("UPDATE reads.stock SET qty = qty + 1 WHERE id = 1")
        other = shop.open("DELETE FROM reads.stock WHERE id = 2")
        shop.database.execute("UPDATE reads.stock SET qty = qty + 10 WHERE id = 3")
        shop.signal(kind)
        shop.until(lambda lost=lost: shop.in_silver()[lost] == 1000)  # type: ignore[misc]
        first.execute("UPDATE reads.stock SET qty = qty + 1 WHERE id = 1")
        first.commit()
        other.commit()
        shop.database.execute("UPDATE reads.stock SET qty = qty + 100 WHERE id = 4")
        shop.database.execute("INSERT INTO reads.stock VALUES (2, 5) ON CONFLICT DO NOTHING")
        shop.until(lambda: shop.in_silver() == shop.in_database())
    assert shop.in_database()[7] == shop.in_database()[8] == 1000
