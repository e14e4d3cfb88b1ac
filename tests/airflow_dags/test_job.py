"""How a task ends: which exit codes and signals are retried, and the window that a run gets."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.airflow_dags.airflow import PROGRAMS, command_output

pytestmark = pytest.mark.skipif(not PROGRAMS.is_dir(), reason="Airflow's environment is made by `make test`")

RUN = """
import json, os, pathlib, signal, sys, threading, time
from airflow_dags.job import Job

def once_ready(name, end):
    while not pathlib.Path(name + ".ready").exists():
        time.sleep(0.05)
    end()

def outcome(number, program, code):
    job = Job(task_id=f"job{number}", program=program, arguments=["-c", code], cwd=os.getcwd())
    if "TOLD" in code:
        threading.Thread(target=once_ready, args=("told", job.on_kill), daemon=True).start()
    if "INTERRUPT" in code:
        interrupt = lambda: os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=once_ready, args=("interrupted", interrupt), daemon=True).start()
    try:
        job.execute({"task": job})
    except BaseException as error:
        return [type(error).__name__, str(error)]
    return ["success", ""]

print(json.dumps([outcome(number, *case) for number, case in enumerate(json.loads(sys.argv[1]))]))
"""
PLAN = """
import json, sys
from datetime import datetime
from airflow_dags.window import jobs_of_window

def jobs(cron, start, params):
    date = datetime.fromisoformat(start) if start else None
    try:
        return jobs_of_window.function("shop.yaml", cron, {"a": "silver/shop/a"}, params, date)
    except Exception as error:
        return [type(error).__name__, str(error)]

print(json.dumps([jobs(*case) for case in json.loads(sys.argv[1])]))
"""
FOR_GOOD, RETRIED = "AirflowFailException", "AirflowException"
SLOW = "import pathlib, signal, sys, time; "
ENDS_WELL = (
    f"{SLOW}signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path('%(name)s').touch(), sys.exit(0))); "
    "pathlib.Path('%(name)s.ready').touch(); time.sleep(600)"
)
CASES = {
    "all is good": ("python3", "print('merged')", "success"),
    "a check differs": ("python3", "raise SystemExit(1)", FOR_GOOD),
    "the user has to change something": ("python3", "raise SystemExit(2)", FOR_GOOD),
    "exit code 75": ("python3", "raise SystemExit(75)", RETRIED),
    "a code of another program": ("python3", "raise SystemExit(137)", RETRIED),
    "killed": ("python3", "import os; os.kill(os.getpid(), 9)", RETRIED),
    "a program that isn't there": ("nowhere/ingest", "", FOR_GOOD),
    "told to end, and ends well": ("python3", f"{ENDS_WELL % {'name': 'told'}}  # TOLD", RETRIED),
    "interrupted": ("python3", f"{ENDS_WELL % {'name': 'interrupted'}}  # INTERRUPT", "KeyboardInterrupt"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("jobs")


@pytest.fixture(scope="module")
def outcomes(folder: Path) -> dict[str, Any]:
    cases = [case[:2] for case in CASES.values()]
    found = command_output(RUN, cases, environment={"AIRFLOW_HOME": str(folder)}, cwd=folder)
    return dict(zip(CASES, found, strict=True))


@pytest.mark.parametrize("case", CASES)
def test_task_ends_like_its_job(case: str, outcomes: dict[str, Any]) -> None:
    assert outcomes[case][0] == CASES[case][2], outcomes[case]


def test_failure_explains_the_exit_code(outcomes: dict[str, Any]) -> None:
    assert "its last lines say what to do" in outcomes["the user has to change something"][1]
    assert "ended by signal 9" in outcomes["killed"][1]
    assert "airflow: command" in outcomes["a program that isn't there"][1]


@pytest.mark.parametrize("case", ["told", "interrupted"])
def test_killed_task_lets_the_job_finish_its_batch(case: str, outcomes: dict[str, Any], folder: Path) -> None:
    deadline = time.monotonic() + 120
    while not (folder / case).exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


COMMAND = ["backfill", "shop.yaml"]
WINDOWS = {
    "a day": (
        ("0 0 * * *", "2026-03-29T00:00:00+00:00", {}),
        ("2026-03-29T00:00:00+00:00", "2026-03-30T00:00:00+00:00"),
    ),
    "February": (
        ("@monthly", "2026-02-01T00:00:00+00:00", {}),
        ("2026-02-01T00:00:00+00:00", "2026-03-01T00:00:00+00:00"),
    ),
    "in another zone": (
        ("@hourly", "2026-03-29T03:00:00+02:00", {}),
        ("2026-03-29T01:00:00+00:00", "2026-03-29T02:00:00+00:00"),
    ),
    "as asked": (
        ("@daily", None, {"from": "2026-01-01T05:30:00Z", "to": "2026-01-01T06:00:00+00:00"}),
        ("2026-01-01T05:30:00+00:00", "2026-01-01T06:00:00+00:00"),
    ),
}
REFUSED: dict[str, tuple[Any, str]] = {
    "not over yet": (("@yearly", "2999-01-01T00:00:00+00:00", {}), "records may still be written until then"),
    "no window": (("@daily", None, {}), "has no window"),
}
CHOSEN = {"tables": ["a", "b", "a"], "source": "archive"}


@pytest.fixture(scope="module")
def plans(folder: Path) -> Any:
    cases = [case for case, _ in (WINDOWS | REFUSED).values()]
    cases.append(("@daily", "2026-01-01T00:00:00+00:00", CHOSEN))
    return command_output(PLAN, cases, environment={"AIRFLOW_HOME": str(folder)})


def test_window_ends_where_the_next_begins(plans: Any) -> None:
    for (_, (start, end)), jobs in zip(WINDOWS.values(), plans, strict=False):
        command = [*COMMAND, f"--from={start}", f"--to={end}"]
        assert jobs == [{"arguments": command, "assets": ["silver/shop/a"]}]


def test_incomplete_window_is_refused(plans: Any) -> None:
    for (_, sentence), refused in zip(REFUSED.values(), plans[len(WINDOWS) :], strict=False):
        assert refused[0] == FOR_GOOD
        assert sentence in refused[1]


def test_each_chosen_table_has_one_job(plans: Any) -> None:
    window = ["--from=2026-01-01T00:00:00+00:00", "--to=2026-01-02T00:00:00+00:00", "--source=archive"]
    assert plans[-1] == [
        {"arguments": [*COMMAND, *window, "--table=a"], "assets": ["silver/shop/a"]},
        {"arguments": [*COMMAND, *window, "--table=b"], "assets": []},
    ]
