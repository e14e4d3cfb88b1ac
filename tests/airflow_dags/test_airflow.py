"""A real Airflow backfills windows of a changelog. One job is killed midway; silver is right afterwards."""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ingest.jvm.library import session_jars
from ingest.names import Lakehouse
from ingest.spark.session import SHORT_LIVED
from ingest.stack import Stack
from tests.airflow_dags.airflow import PROGRAMS, ROOT, Airflow, command_output
from tests.changelogs import Topic
from tests.docs.pages import commands

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    pytest.mark.skipif(not PROGRAMS.is_dir(), reason="Airflow's environment is made by `make test`"),
]
EVENTS = [200, 600, 200]
"""Events per window. The second window takes several slices, so that its job can be killed between two of them."""
TABLE = "public.orders"
SUBMITTED = {"submit": "spark", "application": str(ROOT / "jobs" / "command.py"), "run": "@daily", "retries": 0}
RUNS = "SELECT partition_key, state FROM dag_run WHERE dag_id = ?"
TRIES = """SELECT run.partition_key, task.try_number, task.rendered_map_index FROM task_instance task
    JOIN dag_run run USING (dag_id, run_id) WHERE dag_id = ? AND task_id = ?"""
MISSING = "the environment variable ONLY_IN_A_SHELL is not set"
ENDS = "SELECT task_id, state, try_number FROM task_instance WHERE dag_id = ?"
DAG_TEST = """
import json, sys
from airflow.dag_processing.dagbag import DagBag

folder, name = json.loads(sys.argv[1])
run = DagBag(folder).dags[name].test()
print(json.dumps({task.task_id: [task.state, task.try_number] for task in run.get_task_instances()}))
"""
CONSUMER = """
from airflow.sdk import DAG, Asset, PartitionedAssetTimetable
from airflow.providers.standard.operators.empty import EmptyOperator

with DAG("consumer", schedule=PartitionedAssetTimetable(assets=Asset("silver/shop"))) as dag:
    EmptyOperator(task_id="report")
"""


class Shop:
    """A table whose windows of an hour each hold inserts, updates and deletes. `rows`: the rows that it has now."""

    def __init__(self) -> None:
        self.log = Topic(f"windows-{uuid.uuid4().hex}")
        self.rows: dict[int, str] = {}
        self.first = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=len(EVENTS) + 1)
        self._lsn = 0

    def send(self, servers: str) -> None:
        """Produces all records, each with a time in its window."""
        producer = Producer({"bootstrap.servers": servers})
        for window in range(len(EVENTS)):
            begun = int((self.first + timedelta(hours=window)).timestamp() * 1000)
            for number, record in enumerate(self._window(window)):
                value = None if record["value"] is None else json.dumps(record["value"])
                producer.produce(self.log.name, value, json.dumps(record["key"]), timestamp=begun + number)
        assert producer.flush(60) == 0

    def _window(self, window: int) -> list[dict[str, Any]]:
        before = len(self.log.records)
        for key in range(window * 100, window * 100 + EVENTS[window]):
            self._lsn += 1
            note = f"{window}: {self._lsn}"
            if key in self.rows and key % 7 == 0:
                del self.rows[key]
                self.log.change("d", self._lsn, before={"id": key})
                self.log.tombstone({"id": key})
            else:
                self.log.change("u" if key in self.rows else "c", self._lsn, {"id": key, "note": note})
                self.rows[key] = note
        return self.log.records[before:]


@pytest.fixture(scope="module")
def shop(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> tuple[Shop, Path]:
    """Returns a changelog in Kafka that is not captured yet, with a folder for its lakehouse and its `conf`."""
    root = tmp_path_factory.mktemp("airflow")
    shop = Shop()
    shop.send(stack.kafka.bootstrap_servers)
    source = {"kafka": {"bootstrap.servers": stack.kafka.bootstrap_servers}, "topics": [shop.log.name]}
    pipeline = {
        "source": source,
        "lakehouse": str(root / "lakehouse"),
        "spark": SHORT_LIVED | {"spark.driver.memory": "1g"},
    }
    settings = {
        "command": str(Path(sys.executable).with_name("ingest")),
        "backfill": "@hourly",
        "tables": [TABLE],
        "retries": 1,
        "retry_delay_seconds": 1,
    }
    secret = {"source": {**source, "exclude_tables": "${ONLY_IN_A_SHELL}"}}
    jar_files = {"spark.jars": ",".join(map(str, session_jars()))}
    written(root / "conf", "shop", pipeline | {"batch": {"max_events": 300}, "airflow": settings})
    written(root / "conf", "secret", pipeline | secret | {"airflow": settings})
    written(root / "submitted" / "conf", "shop", pipeline | {"spark": SHORT_LIVED | jar_files, "airflow": SUBMITTED})
    return shop, root


def written(conf: Path, name: str, pipeline: dict[str, Any]) -> None:
    (conf / "pipelines").mkdir(parents=True, exist_ok=True)
    (conf / "pipelines" / f"{name}.yaml").write_text(json.dumps(pipeline), encoding="utf-8")


@pytest.fixture(scope="module")
def airflow(shop: tuple[Shop, Path]) -> Iterator[Airflow]:
    _, root = shop
    (root / "dags").mkdir()
    (root / "dags" / "consumer.py").write_text(CONSUMER, encoding="utf-8")
    (root / "dags" / "pipelines.py").symlink_to(ROOT / "airflow_dags" / "pipelines.py")
    environment = {"INGEST_CONF": str(root / "conf"), "PYTHONPATH": str(ROOT)}
    with Airflow(root / "home", root / "dags", environment) as running:
        expected = {"consumer", "shop.backfill", "secret.upkeep"}
        names = "SELECT dag_id FROM serialized_dag"
        running.wait("the DAGs", lambda: expected <= {name for (name,) in running.rows(names)})
        running.cli("dags", "unpause", "--treat-dag-id-as-regex", "|".join(expected), "--yes")
        yield running


def test_backfill_with_a_killed_job_is_completed(
    airflow: Airflow, shop: tuple[Shop, Path], spark: SparkSession
) -> None:
    source, root = shop
    windows = [source.first + timedelta(hours=n) for n in range(len(EVENTS))]
    dates = {"2026-03-01": windows[0].isoformat(), "2026-03-31": windows[-1].isoformat()}
    words = next(words for words in commands("airflow") if words[1:3] == ["backfill", "create"])
    airflow.cli(*(dates.get(word, word) for word in words[1:]), "--dag-run-conf", '{"source": "kafka"}')
    kill_in_the_middle(airflow, f"--from={windows[1].isoformat()}", silver_path(root))
    airflow.wait("all windows", lambda: {s for _, s in airflow.rows(RUNS, "shop.backfill")} == {"success"}, 900)
    keys = [window.strftime("%Y-%m-%dT%H:%M:%S") for window in windows]
    tries = [(key, number, f"--table={TABLE}") for key, number in zip(keys, [1, 2, 1], strict=True)]
    assert sorted(airflow.rows(TRIES, "shop.backfill", "backfill")) == tries
    assert silver_of(root, spark) == sorted(source.rows.items())
    airflow.wait("the consumer", lambda: sorted(airflow.rows(RUNS, "consumer")) == [(k, "success") for k in keys])


def test_user_errors_are_not_retried(airflow: Airflow) -> None:
    airflow.wait("its end", lambda: airflow.rows(f"{RUNS} AND state = 'failed'", "secret.upkeep"))
    ((_, tries, _),) = airflow.rows(TRIES, "secret.upkeep", "gc")
    logs = sorted(airflow.home.glob("logs/dag_id=secret.upkeep/*/task_id=gc/attempt=*.log"))
    command_output = [log.read_text(encoding="utf-8") for log in logs]
    # On a busy machine Airflow may lose a job, which then has no end.
    ended = [
        (log.stem, MISSING in text) for log, text in zip(logs, command_output, strict=True) if " ended with " in text
    ]
    assert ended == [(f"attempt={tries}", True)], "\n".join(command_output)


def test_spark_submit_backfill_changes_no_merged_row(
    airflow: Airflow, shop: tuple[Shop, Path], spark: SparkSession
) -> None:
    source, root = shop
    environment = airflow.environment | {
        "INGEST_CONF": str(root / "submitted" / "conf"),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYSPARK_PYTHON": sys.executable,
    }
    assert command_output(DAG_TEST, [str(ROOT / "airflow_dags"), "shop.run"], environment) == {"run": ["success", 1]}
    assert silver_of(root, spark) == sorted(source.rows.items())


def test_missing_row_fails_the_verification(airflow: Airflow, shop: tuple[Shop, Path], spark: SparkSession) -> None:
    source, root = shop
    DeltaTable.forPath(spark, str(silver_path(root))).delete(F.col("id") == min(source.rows))
    airflow.cli("dags", "unpause", "shop.verify", "--yes")
    airflow.wait("its end", lambda: airflow.rows(f"{RUNS} AND state = 'failed'", "shop.verify"), 900)
    assert sorted(airflow.rows(ENDS, "shop.verify")) == [("accounts", "success", 1), ("prove", "failed", 1)]
    (log,) = airflow.home.glob("logs/dag_id=shop.verify/*/task_id=prove/attempt=1.log")
    assert f"{TABLE}: id = {min(source.rows)} is missing" in log.read_text(encoding="utf-8")


def silver_path(root: Path) -> Path:
    return Path(Lakehouse(str(root / "lakehouse")).silver("shop", TABLE))


def silver_of(root: Path, spark: SparkSession) -> list[tuple[Any, ...]]:
    rows = spark.read.format("delta").load(str(silver_path(root))).select("id", "note").collect()
    return sorted(map(tuple, rows))


def kill_in_the_middle(airflow: Airflow, argument: str, silver: Path) -> None:
    """Sends SIGKILL to the job with this argument after its first commit to silver and before its last."""
    job = airflow.wait("the job", lambda: airflow.job(argument))
    commits = len(list(silver.glob("_delta_log/*.json")))
    airflow.wait("its first commit", lambda: len(list(silver.glob("_delta_log/*.json"))) > commits)
    job.kill()
