"""The output of `ingest run` and `ingest status`, line by line."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from ingest.cli import app
from ingest.cli.pipeline import status as status_command
from ingest.lakehouse.accounts import Accounts
from ingest.stack import Stack
from tests.topic_shop import Shop

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[2]
TIMES = re.compile(r"\d+(\.\d+)? s|\d+ a second|\d[\d,.]* s old")


@pytest.fixture
def shop(tmp_path: Path, stack: Stack, spark: SparkSession) -> Shop:
    return Shop(spark, stack.kafka.bootstrap_servers, tmp_path)


@pytest.fixture
def status_of(shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs `ingest status` and returns its text, or its JSON."""
    monkeypatch.setattr(status_command, "running", lambda *_: nullcontext(spark))

    def run(*options: str) -> Any:
        done = CliRunner().invoke(app, ["status", str(shop.file), *options], catch_exceptions=False)
        assert done.exit_code == 0
        return json.loads(done.stdout) if options else done.stdout

    return run


def ingest(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", "from ingest.cli import main; main()", *arguments],
        cwd=Path(arguments[1]).parent,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished_run(*arguments: str) -> tuple[list[str], list[str]]:
    """Returns the lines that a command prints to stdout and to stderr."""
    with ingest(*arguments) as process:
        out, err = process.communicate(timeout=900)
    assert process.returncode == 0, err
    return out.splitlines(), err.splitlines()


@pytest.mark.long
def test_run_prints_its_waits_and_progress(shop: Shop) -> None:
    log = shop.log
    shop.produce(log.change("c", 10, {"id": 1, "v": "a"}), log.change("c", 20, {"id": 2, "v": "b"}))
    out, err = finished_run("run", str(shop.file), "--available-now")
    servers = shop.kafka["bootstrap.servers"]
    assert [re.sub(r"\d+\.\d+\.\d+", "N", line) for line in err] == [
        "ingest N: starting pipeline shop",
        "waiting for Java and Spark",
        "Spark N with Delta N runs",
        f"lakehouse {shop.file.parent}/lakehouse: 0 batches captured, 0 batches merged",
        f"waiting for Kafka at {re.sub(r'[0-9]+[.][0-9]+[.][0-9]+', 'N', servers)}",
        f"reading 1 topic: {log.name}",
        "2 records to capture from the start",
    ]
    assert [TIMES.sub("T", line) for line in out] == [
        "captured 2 records, merged 2 events in T (T), 0 records behind, newest change T",
        "  public.orders: read 2, applied 2",
    ]
    shop.produce(log.change("c", 30, {"id": 3, "v": "c"}), log.change("u", 40, {"id": 3, "v": "d"}))
    with ingest("run", str(shop.file), "--json") as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        out_after, err_after = process.communicate(timeout=900)
    assert process.returncode == 0, err_after
    assert (first["captured"], first["tables"]["public.orders"]["applied"], out_after) == (2, 1, "")
    assert "/lakehouse: 1 batch captured, 1 batch merged\n" in err_after
    assert "2 records to capture since the last run\n" in err_after
    assert err_after.endswith("stopping: the batch in hand is finished first\n")
    out, err = finished_run("vacuum", str(shop.file))
    assert (len(out), err) == (1, [])
    assert {path.name for path in shop.file.parent.iterdir()} == {"shop.yaml", "lakehouse"}


@pytest.mark.long
def test_status_shows_lag_last_batch_and_schema_changes(shop: Shop, status_of: Callable[..., Any]) -> None:
    log = shop.log
    shop.send(log.change("c", 10, {"id": 1, "v": "a"}))
    shop.send(log.change("c", 20, {"id": 2, "v": "b", "n": 1}))
    found = status_of("--json")
    assert (found["captured"], found["merged"], found["waiting"]) == (2, 2, 0)
    assert found["lag"] == {"records": 0, "seconds": 0.0, "unknown": None}
    assert (found["last_batch"]["upto"], found["last_batch"]["events"]) == (2, 1)
    assert [(c["table"], c["change"]) for c in found["schema_changes"]] == [("public.orders", "column n int64 added")]
    assert found["set_aside"] == {}
    shop.produce(log.change("u", 30, {"id": 2, "v": "c"}), log.change("u", 40, {"id": 2, "v": "d"}))
    found = status_of("--json")
    assert found["lag"]["records"] == 2
    assert found["lag"]["seconds"] > 0
    text = status_of()
    assert re.search(r"lag: at most [\d,.]+ s; 2 records to capture, 0 batches to merge\n", text)
    assert re.search(r"last batch: \d{4}-\d\d-\d\d [\d:]+ UTC, 1 event \(up to capture batch 2\)\n", text)
    assert re.search(r"schema change: [-\d]+ [\d:]+ UTC, public.orders: column n int64 added\n", text)
    assert "set aside: no table\n" in text


@pytest.mark.long
def test_status_without_a_broker_shows_the_rest(shop: Shop, status_of: Callable[..., Any]) -> None:
    shop.send(shop.log.change("c", 10, {"id": 1, "v": "a"}))
    servers = shop.kafka["bootstrap.servers"]
    shop.file.write_text(shop.file.read_text(encoding="utf-8").replace(servers, "127.0.0.1:1"), encoding="utf-8")
    found = status_of("--json")
    assert (found["lag"]["records"], found["lag"]["seconds"]) == (None, None)
    assert "Kafka at 127.0.0.1:1 gave no answer within 5 s" in found["lag"]["unknown"]
    assert (found["merged"], found["tables"][0]["rows"]) == (1, 1)
    assert "lag: unknown: Kafka at 127.0.0.1:1 gave no answer" in status_of()


@pytest.mark.long
def test_status_of_a_pipeline_that_never_ran(shop: Shop, status_of: Callable[..., Any]) -> None:
    shop.produce(shop.log.change("c", 10, {"id": 1, "v": "a"}))
    found = status_of("--json")
    assert (found["captured"], found["merged"], found["last_batch"], found["tables"]) == (0, 0, None, [])
    assert found["lag"] == {"records": 1, "seconds": None, "unknown": "nothing is merged yet"}
    assert "-1" not in status_of()


@pytest.mark.long
def test_status_never_shows_more_merged_than_captured(
    shop: Shop, status_of: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A regression: status read bronze before the accounts, and showed -1 batches."""
    shop.send(shop.log.change("c", 10, {"id": 1, "v": "a"}))
    rows = Accounts.rows

    def meanwhile(accounts: Any) -> Any:
        monkeypatch.undo()
        shop.send(shop.log.change("c", 20, {"id": 2, "v": "b"}))
        return rows(accounts)

    monkeypatch.setattr(Accounts, "rows", meanwhile)
    found = status_of("--json")
    assert found["waiting"] >= 0
    assert found["captured"] >= found["merged"]
