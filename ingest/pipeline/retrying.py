"""Retries work, from the state of the tables, while a service that it needs is away."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from pyspark.sql import SparkSession
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    sleep_using_event,
    stop_before_delay,
    stop_when_event_set,
    wait_exponential,
)

from ingest.config import Pipeline
from ingest.errors import EngineDied, IngestError
from ingest.failures.conversion import to_ingest_error
from ingest.spark.session import is_running

_T = TypeVar("_T")
OnProgress = Callable[[], None]


class Interrupted(BaseException):
    """A signal asked a run to end while it was waiting."""


class Stop(threading.Event):
    """Set by a signal. While `interrupts` is True, the signal also raises Interrupted in the main thread."""

    def __init__(self) -> None:
        super().__init__()
        self.interrupts = False


@dataclass(frozen=True)
class Waiting:
    """A run waits for a service: its `problem`, since when, the number of failures, the seconds until the next attempt,
    and when it gives up."""

    problem: str
    since: datetime
    failures: int
    next_attempt_seconds: float
    gives_up_at: datetime


@dataclass(frozen=True)
class Resumed:
    """A run continues after `seconds` of waiting."""

    problem: str
    since: datetime
    seconds: float


class Retries:
    """Calls work until it succeeds, for as long as the pipeline's file allows.

    The work has to make all of its objects anew on each call: after an exception in a step only the tables are
    consistent. It calls `progressed` after each successful step, which restarts the time limit.
    """

    def __init__(
        self, spark: SparkSession, pipeline: Pipeline, stop: Stop, report: Callable[[Waiting | Resumed], None]
    ) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._stop = stop
        self._report = report
        self._limit = pipeline.retry.limit
        self._waiting: Waiting | None = None
        self._is_first_failure = True
        self._last: IngestError | None = None

    def __call__(self, work: Callable[[OnProgress], _T]) -> _T:
        """Returns the result of `work`. Raises its last error if a retry can't help, the time is up or a signal
        came."""
        tuning = self._pipeline.tuning
        retrying = Retrying(
            retry=retry_if_exception(_may_pass),
            wait=wait_exponential(multiplier=tuning.first_retry_seconds, max=tuning.longest_retry_seconds),
            stop=stop_before_delay(self._limit) | stop_when_event_set(self._stop),
            after=self._count_from_first_failure,
            before_sleep=self._wait,
            sleep=sleep_using_event(self._stop),
            reraise=True,
        )
        try:
            found: _T = retrying(self._attempt, work)
        except Interrupted:
            if self._last is None:
                raise
            raise self._last from None
        finally:
            self._stop.interrupts = False
        self._progressed()
        return found

    def _attempt(self, work: Callable[[OnProgress], _T]) -> _T:
        if self._waiting is not None and self._stop.is_set():
            raise Interrupted
        try:
            return work(self._progressed)
        except Exception as error:
            if not is_running(self._spark):
                raise EngineDied(
                    f"pipeline {self._pipeline.name}: Spark's process ended during a run",
                    "check whether the machine ran out of memory; the same command continues where it stopped",
                ) from error
            self._last = to_ingest_error(error, self._pipeline)
            if self._last is None or self._last is error:
                raise
            raise self._last from error

    def _progressed(self) -> None:
        self._is_first_failure = True
        self._stop.interrupts = False
        if self._waiting is not None:
            since = self._waiting.since
            self._report(Resumed(self._waiting.problem, since, (datetime.now(UTC) - since).total_seconds()))
            self._waiting = None

    def _count_from_first_failure(self, state: RetryCallState) -> None:
        if self._is_first_failure and state.outcome_timestamp is not None:
            state.start_time, state.attempt_number = state.outcome_timestamp, 1
        self._is_first_failure = False

    def _wait(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        assert isinstance(error, IngestError)
        now = datetime.now(UTC)
        since = now if self._waiting is None else self._waiting.since
        pause = state.upcoming_sleep
        self._waiting = Waiting(error.problem, since, state.attempt_number, round(pause, 1), since + self._limit)
        self._stop.interrupts = True
        self._report(self._waiting)


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, IngestError) and error.retried and not isinstance(error, EngineDied)
