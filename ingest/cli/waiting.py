"""Shows that a run waits for a service that is away: a line or a JSON object for each attempt."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

from pyspark.sql import SparkSession
from rich.console import Console

from ingest.cli.printing import plain_console
from ingest.config import Pipeline
from ingest.pipeline.retrying import OnProgress, Resumed, Retries, Stop, Waiting

_T = TypeVar("_T")


def wait_reporter(as_json: bool, console: Console | None = None) -> Callable[[Waiting | Resumed], None]:
    """Returns a function that shows each failed attempt, and that the work continues. `console`: stderr unless given,
    so that stdout holds only the command's own JSON."""
    console = console or plain_console(stderr=True)
    text = _json if as_json else _sentence
    return lambda state: console.out(text(state))


def retry_while_away(spark: SparkSession, pipeline: Pipeline, as_json: bool, work: Callable[[OnProgress], _T]) -> _T:
    """Returns the result of `work`, which is retried while a service that it needs is away. Ctrl-C interrupts it."""
    return Retries(spark, pipeline, Stop(), wait_reporter(as_json))(work)


def _sentence(state: Waiting | Resumed) -> str:
    if isinstance(state, Resumed):
        return f"continues after {state.seconds:,.0f} s; it had waited since {_clock(state.since)}"
    times = "once" if state.failures == 1 else f"{state.failures} times"
    return (
        f"waiting since {_clock(state.since)}: {state.problem}; failed {times}, next attempt in "
        f"{state.next_attempt_seconds:g} s, gives up at {_clock(state.gives_up_at)}"
    )


def _json(state: Waiting | Resumed) -> str:
    report: dict[str, Any] = {"event": "resumed" if isinstance(state, Resumed) else "waiting", "problem": state.problem}
    report["since"] = state.since.isoformat(timespec="seconds")
    if isinstance(state, Resumed):
        report["waited_seconds"] = round(state.seconds, 1)
    else:
        report["failures"] = state.failures
        report["next_attempt_seconds"] = state.next_attempt_seconds
        report["gives_up_at"] = state.gives_up_at.isoformat(timespec="seconds")
    return json.dumps(report, ensure_ascii=False)


def _clock(moment: datetime) -> str:
    return f"{moment:%H:%M:%S} UTC"
