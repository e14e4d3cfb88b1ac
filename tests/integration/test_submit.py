"""The same jobs by spark-submit."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from ingest.jars import jars
from ingest.names import Lakehouse
from ingest.stack import Stack

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[2]


def test_capture_and_merge_submitted_apart_fill_silver(tmp_path: Path, stack: Stack, spark: SparkSession) -> None:
    topic = f"submitted-{uuid.uuid4().hex}"
    producer = Producer({"bootstrap.servers": stack.kafka.bootstrap_servers})
    source = '"source": {"connector": "postgresql", "schema": "s", "table": "t", "lsn": 5, "ts_ms": 1}'
    producer.produce(topic, '{"before": null, "after": {"id": 1}, "op": "c", ' + source + "}", '{"id": 1}')
    assert producer.flush(60) == 0
    file = tmp_path / "submitted.yaml"
    servers = stack.kafka.bootstrap_servers
    file.write_text(
        f"source: {{kafka: {{bootstrap.servers: '{servers}'}}, topics: [{topic}]}}\nlakehouse: {tmp_path}/lakehouse\n"
    )
    submit = str(Path(sys.executable).with_name("spark-submit"))
    for job in ("capture", "merge"):
        told = subprocess.run(
            [submit, "--jars", ",".join(map(str, jars("spark"))), f"jobs/{job}.py", str(file), "--available-now"],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert told.returncode == 0, told.stderr[-2000:]
    rows = spark.read.format("delta").load(Lakehouse(str(tmp_path / "lakehouse")).silver("submitted", "s.t"))
    assert [r.id for r in rows.collect()] == [1]
