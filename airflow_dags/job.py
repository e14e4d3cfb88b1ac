"""An Airflow task that runs an `ingest` command, and the meaning of its exit code for a retry."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Sequence
from typing import Any

from airflow.sdk import Asset, AssetAlias, BaseOperator, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from ingest.errors import EXIT_DIFFERS, EXIT_USER

_WIDTH = {"COLUMNS": "160"}


class Job(BaseOperator):
    """Runs `program` with `arguments` as a process in the folder `cwd`; its output is the task's log.

    Exit codes 1 (a check differs) and 2 (the user has to change something) fail the task for good. Any other code, or a
    death by a signal, is retried. If the task is killed, the process is asked to end and finishes its batch. Arguments
    are no templates, because a table's name may hold braces.
    """

    def __init__(
        self, *, program: str, arguments: Sequence[str], cwd: str, assets: Sequence[str] = (), **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.program = program
        self.arguments = arguments
        self.cwd = cwd
        self.assets = assets
        self._process: subprocess.Popen[str] | None = None
        self._is_killed = False

    def execute(self, context: Context) -> None:
        code = self._run()
        if self._is_killed:
            # Exit code 0 after a request to stop doesn't mean that all work is done.
            raise AirflowException("the task was killed and has stopped the job")
        if code:
            raise failure(code, f"ingest {self.arguments[0]}")
        emit(context, self.assets)

    def on_kill(self) -> None:
        self._is_killed = True
        if self._process is not None:
            self._process.terminate()

    def _run(self) -> int:
        self.log.info(shlex.join([self.program, *self.arguments]))
        try:
            process = subprocess.Popen(
                [self.program, *self.arguments],
                cwd=self.cwd,
                env=os.environ | _WIDTH,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                # A new session: signals to the task's group would hit Spark's process in the middle of a batch.
                start_new_session=True,
            )
        except OSError as error:
            raise AirflowFailException(
                f"{self.program} can't be started in {self.cwd}: {error.strerror} → "
                "name the program of ingest's own environment under airflow: command in the pipeline's file"
            ) from error
        self._process = process
        try:
            assert process.stdout is not None
            for line in process.stdout:
                self.log.info(line.rstrip())
            return process.wait()
        except BaseException:
            self.on_kill()
            raise


def failure(code: int, command: str) -> AirflowException:
    """Returns the exception for an exit code other than 0; Airflow never retries an AirflowFailException."""
    if code in (EXIT_DIFFERS, EXIT_USER):
        return AirflowFailException(
            f"{command} ended with exit code {code}; a retry can't help: its last lines say what to do"
        )
    if code < 0:
        return AirflowException(f"{command} was ended by signal {-code}")
    return AirflowException(f"{command} ended with exit code {code}; a retry may succeed")


def emit(context: Context, assets: Sequence[str]) -> None:
    """Adds events for these assets, which trigger the DAGs that depend on them."""
    for alias in (outlet for outlet in context["task"].outlets if isinstance(outlet, AssetAlias)):
        for name in assets:
            context["outlet_events"][alias].add(Asset(name))
