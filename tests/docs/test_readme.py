"""The code blocks of the README and of `docs` do what these say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from ingest.backfill.replay import Case, Delivery, replay
from ingest.cli import app
from ingest.config import load
from ingest.connector import Placement, recipe
from ingest.connector.signals import missing_properties
from tests.changelogs import Topic, schema, write
from tests.docs.pages import ROOT, blocks, commands, pages

ANSWERS = {
    "claims.accident_claims": '"status": "open", "count(1)": 2',
    "system.quarantine": '"code": "unknown-op", "count(1)": 1',
    "system.accounts": '"quarantined": 1',
}
"""A part of the answer to the query that names the table."""
TEXT = "\n".join(pages().values())


def test_named_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"(?:^|`)make ([a-z]+(?:-[a-z]+)*)", TEXT, flags=re.MULTILINE))
    assert {"demo", "test", "test-all", "check"} <= named
    assert all(re.search(rf"^{target}:", makefile, flags=re.MULTILINE) for target in named)


def test_pipeline_files_load_and_are_short(tmp_path: Path) -> None:
    found = blocks("yaml")
    assert found
    for number, text in enumerate(found):
        assert len(text.splitlines()) < 15
        file = tmp_path / f"shop{number}.yaml"
        file.write_text(text, encoding="utf-8")
        pipeline = load(str(file), {"KAFKA_JAAS": "x"})
        assert pipeline.lakehouse == "/data/lakehouse"


def test_connector_settings_are_those_of_the_recipe() -> None:
    placement = Placement("shop", kafka={"bootstrap.servers": "broker:9092"})
    settings = {setting.name: setting.value for setting in recipe(placement)}
    for text in set(blocks("properties")):
        named = dict(line.split("=", 1) for line in text.splitlines())
        signal_table = named.get("signal.data.collection")
        notifications = settings["notification.sink.topic.name"]
        also = missing_properties(settings, "broker:9092", notifications, signal_table) if signal_table else {}
        assert named == {name: (settings | also)[name] for name in named}


def test_named_commands_and_options_exist() -> None:
    groups = {group.name for group in app.registered_groups}
    for _, *arguments in commands("ingest"):
        command = arguments[: 2 if arguments[0] in groups else 1]
        completed = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "300", "TERM": "dumb"})
        assert completed.exit_code == 0
        for option in (a for a in arguments if a.startswith("--")):
            assert option in completed.output


def test_every_command_is_documented() -> None:
    commands_there = [c.name or c.callback.__name__ for c in app.registered_commands if c.callback]
    groups = [g.name for g in app.registered_groups]
    assert len(commands_there) >= 6
    assert [c for c in [*commands_there, *groups] if f"ingest {c}" not in TEXT] == []


@pytest.fixture(scope="module")
def lakehouse(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a small lakehouse like the demo's, with an update and a delete."""
    root = tmp_path_factory.mktemp("readme")
    amount = {
        "field": "amount",
        "type": "bytes",
        "optional": True,
        "name": "org.apache.kafka.connect.data.Decimal",
        "version": 1,
        "parameters": {"scale": "2", "connect.decimal.precision": "12"},
    }
    columns = schema(("id", "int64"), ("status", "string"), amount)
    topic = Topic("claims.claims.accident_claims", ("claims", "accident_claims"))
    for lsn, (i, status) in enumerate([(1, "open"), (2, "open"), (3, "paid")], start=10):
        topic.change("r", lsn, {"id": i, "status": status, "amount": "AeIT"}, schema=columns)
    topic.change("u", 20, {"id": 2, "status": "open", "amount": "Cg=="}, schema=columns)
    topic.change("d", 21, before={"id": 3, "status": "paid", "amount": None}, schema=columns)
    topic.record({"id": 4}, {})
    folder = write(root / "claims", topic.records, None)
    case = Case("claims", (folder / "events.jsonl",), None, root / "lakehouse")
    for _, summary in replay(spark, [case], Delivery(batch_size=4), "delta"):
        assert summary["tables"]["claims.accident_claims"]["rows"] == 2
    return root


@pytest.mark.spark
@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_reading_examples_run(number: int, lakehouse: Path, tmp_path: Path) -> None:
    """Runs the examples as printed, with nothing installed but what pip brings."""
    completed = subprocess.run(
        [sys.executable, "-c", blocks("python")[number]],
        cwd=lakehouse,
        env=os.environ | {"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr[-2000:]
    assert "1234.21" in completed.stdout or "1234.11" in completed.stdout


def test_packages_of_reading_examples_are_named() -> None:
    (line,) = re.findall(r"`pip install (duckdb [^`]+)`", TEXT)
    modules = {name.split(".")[0] for name in re.findall(r"^(?:from|import) (\S+)", blocks("python")[0], re.MULTILINE)}
    assert modules <= {name.replace("-", "_") for name in line.split()}


@pytest.mark.spark
def test_sql_examples_answer(lakehouse: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the first query in its own process, like a user; the others in this session."""
    # Queries with --decrypt need a pipeline and its keys: tests/shredding/test_shredding.py runs them.
    arguments_by_query = {
        c[-1]: [*c[1:], "--json"] for c in commands("ingest") if c[1:4] == ["sql", "--lakehouse", "lakehouse"]
    }
    first, *others = [next(query for query in arguments_by_query if text in query) for text in ANSWERS]
    answered = subprocess.run(
        [sys.executable, "-c", "from ingest.cli import main; main()", *arguments_by_query[first]],
        cwd=lakehouse,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert answered.returncode == 0, answered.stderr[-2000:]
    assert "log level" not in answered.stderr
    answers = [answered.stdout]
    monkeypatch.chdir(lakehouse)
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    for query in others:
        result = CliRunner().invoke(app, arguments_by_query[query])
        assert result.exit_code == 0, result.output
        answers.append(result.stdout)
    assert [text for text, answer in zip(ANSWERS.values(), answers, strict=True) if text not in answer] == []
    assert not (lakehouse / "spark-warehouse").exists()
