"""The wheel works where there is no repository: commands, jobs, Java and jars are in it or are fetched by it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ingest.config import json_schema_text
from tests.changelogs import Topic, write

ROOT = Path(__file__).parents[2]
BUILT_FROM = ("ingest", "airflow_dags", "pyproject.toml", "README.md", "LICENSE")
PIPELINE = """\
source:
  kafka: {bootstrap.servers: "localhost:9092"}
  topic_pattern: shop\\.public\\..*
lakehouse: lakehouse
"""
Program = Callable[..., str]

pytestmark = [pytest.mark.spark, pytest.mark.long]


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Returns what a program prints; nothing of this repository or its environment is on its paths."""
    foreign = {"PYTHONPATH", "VIRTUAL_ENV", "PYSPARK_PYTHON", "INGEST_CONF"}
    inherited = {name: value for name, value in os.environ.items() if name not in foreign}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=inherited | environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """Runs a program of an environment that holds the wheel and what it depends on, in an empty folder."""
    folder = tmp_path_factory.mktemp("wheel")
    source, elsewhere = folder / "source", folder / "elsewhere"
    source.mkdir()
    elsewhere.mkdir()
    for part in BUILT_FROM:
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        copy(ROOT / part, source / part)
    run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        folder,
        f"{source}{os.sep}",
        cwd=folder,
    )
    shutil.rmtree(source)
    (wheel,) = folder.glob("ingest-*.whl")
    run(sys.executable, "-m", "venv", folder / "environment", cwd=folder)
    programs = folder / "environment" / "bin"
    pins = ("--constraint", ROOT / "constraints.txt")
    run(programs / "python", "-m", "pip", "install", "--quiet", "--no-compile", *pins, wheel, cwd=folder)

    def program(name: str, *arguments: str | Path) -> str:
        return run(programs / name, *arguments, cwd=elsewhere)

    return program


def test_wheel_replays_a_changelog(installed: Program, tmp_path: Path) -> None:
    topic = Topic("shop.public.orders", ("public", "orders"))
    topic.change("c", 10, {"id": 1, "total": 5})
    topic.change("c", 11, {"id": 2, "total": 6})
    topic.change("u", 12, {"id": 1, "total": 7})
    topic.change("d", 13, before={"id": 2, "total": 6})
    events = write(tmp_path / "orders", topic.records, None) / "events.jsonl"
    installed("ingest", "replay", events, "--out", tmp_path / "out", "--format", "jsonl")
    summary = json.loads((tmp_path / "out" / "orders" / "accounts.json").read_text(encoding="utf-8"))
    assert summary["tables"]["public.orders"]["rows"] == 1


def test_wheel_checks_a_pipeline_and_runs_jobs_as_modules(installed: Program, tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(PIPELINE, encoding="utf-8")
    plan = json.loads(installed("ingest", "check", file, "--json"))
    assert plan["bronze"] == "lakehouse/bronze/shop"
    assert json.loads(installed("python", "-m", "ingest.jobs.command", "check", file, "--json")) == plan
    assert installed("ingest", "schema") == json_schema_text()
    assert installed("ingest", "jars").rstrip().endswith(".jar")
    assert "--available-now" in installed("python", "-m", "ingest.jobs.run", "--help")
