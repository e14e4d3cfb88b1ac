"""Starts Airflow in its own environment, with its database and processes, and stops them."""

from __future__ import annotations

import json
import os
import secrets
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Self

import psutil

from ingest.stack.ports import HOST, remembered_ports

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / ".venv-airflow" / "bin"
NOTHING_SPECIAL = {"PATH": os.environ["PATH"], "HOME": str(Path.home()), "NO_PROXY": HOST, "no_proxy": HOST}


def command_output(script: str, argument: object, environment: Mapping[str, str], cwd: Path = ROOT) -> Any:
    """Runs a script with Airflow's Python in `cwd` and returns its last line of output, parsed as JSON. The argument is
    passed as JSON."""
    done = subprocess.run(
        [PROGRAMS / "python", "-c", script, json.dumps(argument)],
        cwd=cwd,
        env=NOTHING_SPECIAL | {"AIRFLOW__CORE__LOAD_EXAMPLES": "False"} | dict(environment),
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


class Airflow:
    """`airflow standalone` with SQLite in the folder `home`, with the DAGs of the folder `dags`."""

    def __init__(self, home: Path, dags: Path, environment: Mapping[str, str]) -> None:
        home.mkdir()
        self.home = home
        ports = remembered_ports(home / "ports.json", ("api", "scheduler", "triggerer"))
        api = f"http://{HOST}:{ports['api']}"
        self.environment = {
            **NOTHING_SPECIAL,
            "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True",
            "AIRFLOW__CORE__PARALLELISM": "2",
            # Both cores are busy with other tests: with a short timeout a slow answer would count as a failed try.
            "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
            "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "120",
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{api}/execution/",
            "AIRFLOW__API__BASE_URL": api,
            "AIRFLOW__API__HOST": HOST,
            "AIRFLOW__API__PORT": str(ports["api"]),
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
            "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(ports["scheduler"]),
            "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(ports["triggerer"]),
            **environment,
        }
        self._log = home / "standalone.log"
        self._session = 0

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._session = subprocess.Popen(
                [PROGRAMS / "airflow", "standalone"],
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            ).pid
        try:
            self.wait("the scheduler", lambda: self.rows("SELECT 1 FROM job WHERE job_type = 'SchedulerJob'"))
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Kills its processes, their tasks, and the jobs of these."""
        while running := self.processes():
            for process in running:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGKILL)
            psutil.wait_procs(running, timeout=10)

    def processes(self) -> list[psutil.Process]:
        """Returns all processes of this Airflow. Jobs have their own sessions, and Airflow overwrites its processes'
        environment with titles."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, ProcessLookupError):
                ours = os.getsid(process.pid) == self._session or process.environ().get("AIRFLOW_HOME") == str(
                    self.home
                )
                if ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def job(self, argument: str) -> psutil.Process | None:
        """Returns the process of the running job with this argument."""
        for process in sorted(self.processes(), key=lambda p: p.pid):
            with suppress(psutil.Error):
                if argument in process.cmdline():
                    return process
        return None

    def cli(self, *arguments: str) -> str:
        """Returns the output of `airflow` with these arguments."""
        done = subprocess.run(
            [PROGRAMS / "airflow", *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Returns rows of Airflow's database."""
        if not (file := self.home / "airflow.db").is_file():
            return []
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=30)) as connection:
            try:
                return connection.execute(query, values).fetchall()
            except sqlite3.OperationalError:
                return []

    def wait(self, what: str, ask: Callable[[], Any], seconds: float = 600) -> Any:
        """Returns the first result that isn't empty."""
        deadline = time.monotonic() + seconds
        while not (answer := ask()):
            log = self._log.read_text(errors="replace")[-4000:]
            assert time.monotonic() < deadline, f"waited for {what} in vain\n{log}"
            time.sleep(0.2)
        return answer
