"""The DAGs that a pipeline file generates, parsed in Airflow's environment without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ingest.cli import app
from tests.airflow_dags.airflow import PROGRAMS, ROOT, command_output

pytestmark = pytest.mark.skipif(not PROGRAMS.is_dir(), reason="Airflow's environment is made by `make test`")

DESCRIBE = """
import json, sys

class NoSpark:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pyspark", "delta", "py4j"):
            raise ImportError(f"{name} is imported")

sys.meta_path.insert(0, NoSpark())
import msgspec
from airflow.dag_processing.dagbag import DagBag
from airflow.serialization.serialized_objects import DagSerialization
bag = DagBag(json.loads(sys.argv[1]))

def task(one):
    settings = getattr(one, "partial_kwargs", {}) or vars(one)
    names = ("arguments", "program", "cwd", "application", "_application_args", "conf", "pool", "retries")
    shown = {name: settings[name] for name in names if name in settings}
    templated = {"arguments", "application_args"} & set(one.template_fields)
    outlets = [outlet.name for outlet in one.outlets]
    return {"operator": one.task_type, "templated": sorted(templated), "outlets": outlets, **shown}

for dag in bag.dags.values():
    msgspec.msgpack.encode(DagSerialization.to_dict(dag))  # The form in which the scheduler gets them.
print(json.dumps({
    "errors": bag.import_errors,
    "dags": {name: {"description": dag.description, "tasks": {one.task_id: task(one) for one in dag.tasks}}
             for name, dag in bag.dags.items()},
    "ingest": sorted(name for name in sys.modules if name.split(".")[0] == "ingest"),
}, default=str))
"""
SOURCE = "source: {kafka: {bootstrap.servers: 'broker:9092'}, topics: [a]}\nlakehouse: /data\n"


SETTINGS = (
    "{run: '*/10 * * * *', tables: [public.orders, 'Große Tabelle'], command: bin/ingest, pool: small, retries: 5}"
)
PIPELINES = {
    "plain": SOURCE,
    "shop": f"{SOURCE}archive: {{uri: 's3://bucket/changelogs'}}\nairflow: {SETTINGS}\n",
    "cluster": f"{SOURCE}spark: {{spark.executor.memory: 4g, spark.hadoop.fs.s3a.secret.key: hunter2}}\n"
    "airflow: {submit: spark}\n",
    "sunk": f"{SOURCE}archive: {{uri: 's3://bucket/topics', layout: confluent}}\n",
    "secret": SOURCE.replace("'broker:9092'", "'broker:9092', sasl.jaas.config: '${KAFKA_JAAS}'"),
    "people": f"{SOURCE}privacy: {{key_file: /keys/ledger}}\n",
    "wrong": f"{SOURCE}airflow: {{run: 'each morning'}}\n",
    "the_other_plain": f"name: plain\n{SOURCE}",
}


def read(home: Path, **environment: str) -> dict[str, Any]:
    found = command_output(DESCRIBE, str(ROOT / "airflow_dags"), environment={"AIRFLOW_HOME": str(home), **environment})
    assert found["errors"] == {}
    return dict(found)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with `conf`."""
    root = tmp_path_factory.mktemp("dags")
    (root / "conf" / "pipelines").mkdir(parents=True)
    for name, text in PIPELINES.items():
        (root / "conf" / "pipelines" / f"{name}.yaml").write_text(text, encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def dags(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = read(root, INGEST_CONF=str(root / "conf"))["dags"]
    return found


def test_shipped_pipeline_has_dags_and_needs_no_spark(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert {"claims.backfill", "claims.upkeep", "claims.verify"} <= set(found["dags"])
    read_for_them = {"ingest", "ingest.errors", "ingest.names", "ingest.tuning"}
    assert {name for name in found["ingest"] if not name.startswith("ingest.config")} == read_for_them


def test_each_pipeline_has_its_dags(dags: dict[str, Any]) -> None:
    of = {name: {dag.removeprefix(f"{name}.") for dag in dags if dag.startswith(f"{name}.")} for name in PIPELINES}
    assert of["plain"] == of["cluster"] == {"backfill", "upkeep", "verify"}
    assert of["shop"] == {"backfill", "run", "upkeep", "verify"}
    assert of["people"] == {"backfill", "upkeep", "verify", "erase"}
    assert dags["people.erase"]["tasks"]["erase"]["arguments"][:-1] == ["erase"]
    assert "--no-keys" in dags["people.verify"]["tasks"]["prove"]["arguments"]


def test_airflow_settings_are_in_the_dags(dags: dict[str, Any], root: Path) -> None:
    file = str(root / "conf" / "pipelines" / "shop.yaml")
    assert dags["shop.run"]["tasks"]["run"] == {
        "operator": "Job",
        "templated": [],
        "outlets": ["silver/shop", "silver/shop/public.orders", "silver/shop/gro_e_tabelle-df71447790"],
        "arguments": ["run", file, "--available-now"],
        "program": str(root / "bin" / "ingest"),
        "cwd": str(root),
        "pool": "small",
        "retries": 5,
    }
    backfill = dags["shop.backfill"]["tasks"]
    assert backfill["silver"]["outlets"] == ["silver/shop"]
    assert backfill["backfill"]["retries"] == 5


def test_upkeep_and_verify_follow_the_pipeline(dags: dict[str, Any]) -> None:
    commands = {
        f"{dag}.{name}": task["arguments"][:-1]
        for dag in ("shop.upkeep", "shop.verify", "sunk.upkeep", "sunk.verify", "plain.upkeep", "plain.verify")
        for name, task in dags[dag]["tasks"].items()
    }
    assert commands == {
        "shop.upkeep.archive": ["archive", "run"],
        "shop.upkeep.gc": ["gc"],
        "shop.upkeep.vacuum": ["vacuum"],
        "shop.verify.accounts": ["accounts"],
        "shop.verify.prove": ["prove"],
        "shop.verify.archive": ["archive", "verify"],
        "sunk.upkeep.gc": ["gc"],
        "sunk.upkeep.vacuum": ["vacuum"],
        "sunk.verify.accounts": ["accounts"],
        "sunk.verify.prove": ["prove"],
        "sunk.verify.archive": ["archive", "verify"],
        "plain.upkeep.gc": ["gc"],
        "plain.upkeep.vacuum": ["vacuum"],
        "plain.verify.accounts": ["accounts"],
        "plain.verify.prove": ["prove"],
    }


def test_dags_run_existing_commands(dags: dict[str, Any]) -> None:
    all_arguments = [
        task["arguments"] for dag in dags.values() for task in dag["tasks"].values() if "arguments" in task
    ]
    commands = {tuple(a for a in arguments if not a.endswith(".yaml")) for arguments in all_arguments}
    assert len(commands) == 9
    for command in commands | {("backfill", "--from", "--to", "--table", "--source")}:
        words = [word for word in command if not word.startswith("--")]
        command_output = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "300", "TERM": "dumb"})
        assert command_output.exit_code == 0, command
        assert [option for option in command if option.startswith("--") and option not in command_output.output] == []


def test_submitted_settings_hold_no_secret(dags: dict[str, Any], root: Path) -> None:
    assert "hunter2" not in str(dags)
    gc = dags["cluster.upkeep"]["tasks"]["gc"]
    assert (gc["operator"], gc["templated"]) == ("SubmittedJob", [])
    assert gc["application"] == str(root / "jobs" / "command.py")
    assert gc["conf"] == {"spark.executor.memory": "4g"}


def test_dags_are_made_without_secrets(dags: dict[str, Any]) -> None:
    assert "secret.backfill" in dags


def test_invalid_file_has_a_refused_dag_and_affects_no_other(dags: dict[str, Any]) -> None:
    assert "airflow.run: should be a cron expression" in dags["wrong.refused"]["description"]
    assert "has the same name as" in dags["the_other_plain.refused"]["description"]
    assert not [name for name in dags if name.startswith(("wrong.", "the_other_plain.")) and "refused" not in name]
