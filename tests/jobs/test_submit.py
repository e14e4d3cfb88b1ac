"""The jobs run by spark-submit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from ingest.errors import EXIT_USER
from ingest.jvm.library import session_jars
from ingest.names import Lakehouse
from ingest.stack import Stack

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[2]


SETTINGS = """
import json
from ingest.cli.failure import run_command
from ingest.spark.session import running

NAMES = ("spark.app.name", "spark.sql.shuffle.partitions", "spark.databricks.delta.snapshotPartitions",
         "spark.sql.adaptive.enabled", "spark.sql.files.maxPartitionBytes", "spark.sql.session.timeZone",
         "spark.sql.broadcastTimeout", "spark.sql.extensions")

def show():
    file = {"spark.sql.shuffle.partitions": "4", "spark.sql.broadcastTimeout": "77"}
    with running("the project's name", file) as spark:
        print(json.dumps({name: spark.conf.get(name) for name in NAMES}))

run_command(show)
"""


def submitted(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Returns the settings of a job that is submitted with these options, on a machine with defaults of its own."""
    (folder / "conf").mkdir()
    (folder / "conf" / "spark-defaults.conf").write_text("spark.sql.files.maxPartitionBytes 12345\n")
    (folder / "job.py").write_text(SETTINGS)
    submit = str(Path(sys.executable).with_name("spark-submit"))
    environment = {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "SPARK_CONF_DIR": str(folder / "conf")}
    return subprocess.run(
        [submit, "--jars", ",".join(map(str, session_jars())), *options, str(folder / "job.py")],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


@pytest.mark.long
def test_submitted_settings_take_precedence(tmp_path: Path) -> None:
    options = ("--master", "local[3]", "--name", "mine", "--conf", "spark.sql.shuffle.partitions=7")
    completed = submitted(tmp_path, *options, "--conf", "spark.sql.adaptive.enabled=true")
    assert completed.returncode == 0, completed.stderr[-2000:]
    found = json.loads(completed.stdout.splitlines()[-1])
    assert found == {
        "spark.app.name": "mine",
        "spark.sql.shuffle.partitions": "7",  # of the submitter, where the file says 4 and the project 3
        "spark.databricks.delta.snapshotPartitions": "3",  # of the project: as many as the cores
        "spark.sql.adaptive.enabled": "true",  # of the submitter
        "spark.sql.files.maxPartitionBytes": "12345",  # of spark-defaults.conf
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.broadcastTimeout": "77",  # of the file
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    }
    # In client mode Spark prints a job's stderr to stdout.
    assert "spark.sql.shuffle.partitions: the submitter's value stands" in completed.stdout


def test_setting_on_which_results_depend_is_refused(tmp_path: Path) -> None:
    completed = submitted(tmp_path, "--master", "local[1]", "--conf", "spark.sql.session.timeZone=Europe/Berlin")
    assert completed.returncode == EXIT_USER
    assert "the submitter sets spark.sql.session.timeZone" in completed.stdout
    assert "Traceback" not in completed.stdout + completed.stderr


@pytest.mark.long
def test_separate_capture_and_merge_jobs_fill_silver(tmp_path: Path, stack: Stack, spark: SparkSession) -> None:
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
        completed = subprocess.run(
            [submit, "--jars", ",".join(map(str, session_jars())), f"jobs/{job}.py", str(file), "--available-now"],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert completed.returncode == 0, completed.stderr[-2000:]
    rows = spark.read.format("delta").load(Lakehouse(str(tmp_path / "lakehouse")).silver("submitted", "s.t"))
    assert [r.id for r in rows.collect()] == [1]
