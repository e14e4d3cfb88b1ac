"""A run retries temporary failures from the state of the tables: the same rows, and each event once."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ingest.config import Pipeline, load
from ingest.delta.delta_table import Table
from ingest.errors import ConfigError, Contended, EngineOverloaded, IngestError, SourceRefused, Unreachable
from ingest.lakehouse.accounts import Accounts
from ingest.lakehouse.bronze import COORDINATES, Bronze
from ingest.pipeline.composition import Progress, Run
from ingest.pipeline.retrying import OnProgress, Resumed, Retries, Stop, Waiting
from ingest.quality.accounting import audit
from ingest.sources.files import FileSource, lines
from ingest.tuning import DEFAULT_TUNING
from tests.changelogs import write
from tests.shop import digests, events, pipeline

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[2]
States = list[Waiting | Resumed]
QUICK = replace(DEFAULT_TUNING, first_retry_seconds=0.01)


class Work:
    """A step with a list of failures, which succeeds after them."""

    def __init__(self, *steps: Exception | None) -> None:
        self.steps = list(steps)
        self.begun = 0

    def __call__(self, progressed: OnProgress) -> str:
        self.begun += 1
        while self.steps:
            step = self.steps.pop(0)
            if step is not None:
                raise step
            progressed()
        return "done"


@pytest.fixture
def shop(tmp_path: Path) -> Pipeline:
    return pipeline(tmp_path)


def away() -> Unreachable:
    return Unreachable("it is away", "wait")


def test_temporary_failures_are_retried_with_growing_waits(spark: SparkSession, shop: Pipeline) -> None:
    states: States = []
    work = Work(away(), Contended("another one", "wait"), None)
    assert Retries(spark, shop, Stop(), states.append)(work) == "done"
    assert work.begun == 3
    first, second, resumed = states
    assert isinstance(first, Waiting)
    assert isinstance(second, Waiting)
    assert isinstance(resumed, Resumed)
    assert [(w.problem, w.failures, w.next_attempt_seconds) for w in (first, second)] == [
        ("it is away", 1, 1.0),
        ("another one", 2, 2.0),
    ]
    assert first.since == second.since == resumed.since
    assert (first.gives_up_at - first.since).total_seconds() == 3600
    assert resumed.seconds >= 3


def test_successful_step_resets_the_time_limit(spark: SparkSession, shop: Pipeline) -> None:
    states: States = []
    assert Retries(spark, shop, Stop(), states.append)(Work(away(), None, away(), None, None)) == "done"
    assert [s.failures if isinstance(s, Waiting) else "on" for s in states] == [1, "on", 1, "on"]


@pytest.mark.parametrize("error", [ConfigError("a", "b"), SourceRefused("a", "b"), ValueError("a defect")])
def test_permanent_failure_ends_the_run(spark: SparkSession, shop: Pipeline, error: Exception) -> None:
    states: States = []
    with pytest.raises(type(error)) as raised:
        Retries(spark, shop, Stop(), states.append)(Work(error))
    assert raised.value is error
    assert states == []


@pytest.mark.parametrize(("limit", "waits"), [("0s", 0), ("2s", 1), ("4s", 2)])
def test_run_gives_up_after_the_time_limit(spark: SparkSession, tmp_path: Path, limit: str, waits: int) -> None:
    """Waits one second, two, four: a wait that would end after the limit does not begin."""
    states: States = []
    shop = pipeline(tmp_path, retry={"give_up_after": limit})
    with pytest.raises(Unreachable, match="away"):
        Retries(spark, shop, Stop(), states.append)(Work(*(away() for _ in range(9))))
    assert len(states) == waits


def test_library_failures_are_retried_by_class(spark: SparkSession, shop: Pipeline) -> None:
    states: States = []
    work = Work(ConnectionResetError(104, "gone"), MemoryError(), KeyError("a defect"))
    with pytest.raises(KeyError):
        Retries(spark, shop.with_tuning(QUICK), Stop(), states.append)(work)
    assert [s.problem.removeprefix("pipeline shop: ") for s in states] == [
        f"the storage of {shop.lakehouse} does not answer",
        "Spark ran out of memory",
    ]


def test_stop_ends_a_wait(spark: SparkSession, shop: Pipeline) -> None:
    stop, work = Stop(), Work(*(away() for _ in range(99)))

    def end(_: Waiting | Resumed) -> None:
        threading.Timer(0.1, stop.set).start()

    with pytest.raises(Unreachable, match="away"):
        Retries(spark, shop, stop, end)(work)
    assert work.begun == 1
    assert not stop.interrupts


def _failing(monkeypatch: pytest.MonkeyPatch, kinds: list[Callable[[], Exception]]) -> list[IngestError]:
    """Makes one commit in five fail: before it is written, or right after."""
    random, commit, failures = Random(7), Table.commit, list[Any]()

    def fails(*arguments: Any, **named: Any) -> Any:
        chance = random.random()
        if chance < 0.1:
            failures.append(random.choice(kinds)())
            raise failures[-1]
        done = commit(*arguments, **named)
        if chance > 0.9:
            failures.append(random.choice(kinds)())
            raise failures[-1]
        return done

    monkeypatch.setattr(Table, "commit", fails)
    return failures


@pytest.mark.long
@pytest.mark.parametrize("mode", ["available-now", "continuous"])
def test_failure_inside_any_step_leaves_no_partial_state(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    records = events()
    file = write(tmp_path / "events", records, None) / "events.jsonl"
    plain, failing = (
        pipeline(tmp_path / name, batch={"max_events": 12}).with_tuning(QUICK) for name in ("plain", "failing")
    )
    _run(spark, plain, file, "available-now", Stop(), [])
    network: list[Callable[[], Exception]] = [away, lambda: ConnectionResetError(104, "gone"), TimeoutError]
    failures = _failing(monkeypatch, [*network, lambda: EngineOverloaded("busy", "wait")])
    states: States = []
    _run(spark, failing, file, mode, Stop(), states)
    monkeypatch.undo()
    assert len(failures) >= 5
    # Tables are merged in parallel: two may fail in one step.
    assert 5 <= len([s for s in states if isinstance(s, Waiting)]) <= len(failures)
    assert digests(spark, failing) == digests(spark, plain)
    rows = Bronze(spark, failing.layout.bronze("shop")).rows()
    assert rows.count() == rows.select(*COORDINATES).distinct().count() == len(records)
    found = audit(rows, Accounts(spark, failing.layout.accounts, "shop").rows())
    assert found.problems == []
    assert (found.merged, found.waiting) == (len(records), 0)


def _run(spark: SparkSession, shop: Pipeline, file: Path, mode: str, stop: Stop, states: States) -> None:
    def run_once(progressed: OnProgress) -> None:
        def reported(_: Progress) -> None:
            progressed()

        def between() -> None:
            progressed()
            merged = Accounts(spark, shop.layout.accounts, "shop").merged_through()
            if Bronze(spark, shop.layout.bronze("shop")).last_batch() == merged and not left():
                stop.set()

        with Run(spark, shop, source=FileSource(list(lines([file])))) as run:
            if mode == "continuous":
                run.continuous(stop, reported, between)
            else:
                run.available_now(stop, reported)

    def left() -> int:
        captured_count = Bronze(spark, shop.layout.bronze("shop")).rows().count()
        return len(file.read_text().splitlines()) - captured_count

    Retries(spark, shop, stop, states.append)(run_once)


def test_killed_engine_ends_the_run_at_once(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(
        "source: {kafka: {bootstrap.servers: '127.0.0.1:1'}, topics: [t]}\nlakehouse: " + str(tmp_path / "l")
    )
    load(tmp_path / "shop.yaml")
    script = f"""
import os, signal
from ingest.cli.failure import run_command
from ingest.config import load
from ingest.pipeline.retrying import Retries, Stop
from ingest.spark.session import SHORT_LIVED, running

def work(progressed):
    os.kill(spark.sparkContext._gateway.proc.pid, signal.SIGKILL)
    spark.range(1).collect()

def command():
    global spark
    with running("a command", SHORT_LIVED) as spark:
        Retries(spark, load({str(tmp_path / "shop.yaml")!r}), Stop(), print)(work)

run_command(command)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 75, done.stderr
    assert "Spark" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
