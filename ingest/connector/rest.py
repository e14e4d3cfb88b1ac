"""A client of Kafka Connect's REST interface: registers, watches, reads, restarts and removes connectors.

Source: Kafka's documentation, "Connect > User Guide > REST API".
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import requests
from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from ingest.errors import SourceRefused, StackFailed, Unreachable

START_TIMEOUT_SECONDS = 90.0
_REQUEST_TIMEOUT_SECONDS = 45.0  # Debezium connects to its database to check a configuration
_CHECK_TIMEOUT_SECONDS = 3.0


@dataclass(frozen=True)
class ConnectorStatus:
    """The states of a connector and its tasks: UNASSIGNED, RUNNING, PAUSED, STOPPED, RESTARTING, FAILED or ABSENT.
    `failures`: the root exception class of each failed one."""

    name: str
    state: str
    task_states: tuple[str, ...]
    failures: tuple[str, ...] = ()

    @property
    def running(self) -> bool:
        """True if the connector and at least one task run, and every task is in state RUNNING."""
        return self.state == "RUNNING" and set(self.task_states) == {"RUNNING"}

    @property
    def failed(self) -> bool:
        """True if the connector or a task has failed."""
        return "FAILED" in (self.state, *self.task_states)


class Connectors:
    """The connectors of the worker at `url`.

    Args:
        login: user and password, for an interface with basic authentication.
        ca_file: the CA certificates that signed the server's certificate, if the system doesn't trust it.
    """

    def __init__(self, url: str, login: tuple[str, str] | None = None, ca_file: str | None = None) -> None:
        self.url = url.rstrip("/")
        self._login = login
        self._verify = ca_file or True

    def check(self) -> None:
        """Raises Unreachable unless the worker answers."""
        answer = self._request("GET", "/connectors", timeout=_CHECK_TIMEOUT_SECONDS, allowed=(404,))
        if not answer.ok:  # the HTTP server is up a moment before the worker behind it
            raise self._unreachable()

    def names(self) -> list[str]:
        """Returns the names of all connectors, sorted."""
        return sorted(self._request("GET", "/connectors").json())

    def configuration(self, name: str) -> dict[str, str]:
        """Returns the connector's properties as they were registered; references to secrets stay references.

        Raises SourceRefused where the worker has no connector of this name.
        """
        answer = self._request("GET", f"{_path(name)}/config", allowed=(404,))
        if answer.status_code == 404:
            raise self._absent(name)
        found: dict[str, str] = answer.json()
        return found

    def topics(self, name: str) -> list[str]:
        """Returns the topics that the connector has written to, sorted; none if the worker doesn't track them."""
        answer = self._request("GET", f"{_path(name)}/topics", allowed=(403, 404))
        return sorted(answer.json()[name]["topics"]) if answer.ok else []

    def version_of(self, connector_class: str) -> str:
        """Returns the version of the worker's plugin; empty if it lists no such class."""
        plugins = self._request("GET", "/connector-plugins").json()
        return next((str(p.get("version") or "") for p in plugins if p["class"] == connector_class), "")

    def put(self, name: str, config: Mapping[str, str]) -> None:
        """Creates the connector, or replaces its configuration. Does not wait for it to run.

        Raises:
            SourceRefused: the worker or the connector rejects `config`.
        """
        self._request("PUT", f"{_path(name)}/config", json=dict(config))

    def await_running(self, name: str, timeout_seconds: float = START_TIMEOUT_SECONDS) -> None:
        """Waits until the connector and its tasks run.

        Raises:
            StackFailed: one of them failed, or they did not start in time.
        """
        polling = Retrying(
            retry=retry_if_result(lambda status: not (status.running or status.failed)),
            stop=stop_after_delay(timeout_seconds),
            wait=wait_fixed(0.1),
        )
        try:
            status = polling(self.status, name)
        except RetryError as late:
            raise StackFailed(
                f"connector {name!r} did not run within {timeout_seconds:.0f} s", "read the worker's log"
            ) from late
        if status.failed:
            raise StackFailed(
                f"connector {name!r} failed ({', '.join(status.failures)})",
                "read the worker's log, correct the configuration, and register the connector again",
            )

    def status(self, name: str) -> ConnectorStatus:
        """Returns the connector's status; state ABSENT, without tasks, if the worker doesn't know it (yet)."""
        answer = self._request("GET", f"{_path(name)}/status", allowed=(404,))
        if answer.status_code == 404:
            return ConnectorStatus(name, "ABSENT", ())
        body: dict[str, Any] = answer.json()
        members = [body["connector"], *body["tasks"]]
        failures = tuple(_root_class(member["trace"]) for member in members if "trace" in member)
        tasks = tuple(task["state"] for task in body["tasks"])
        return ConnectorStatus(name, body["connector"]["state"], tasks, failures)

    def offsets(self, name: str) -> list[dict[str, Any]]:
        """Returns the stored source offsets, one per source partition, from which a restart continues.

        Debezium's Postgres connector stores `lsn` and others, and `snapshot` while its snapshot is in progress.
        """
        entries = self._request("GET", f"{_path(name)}/offsets").json()["offsets"]
        return [entry["offset"] for entry in entries]

    def restart(self, name: str) -> None:
        """Restarts the connector and its tasks, and waits until they run."""
        self._request("POST", f"{_path(name)}/restart?includeTasks=true")
        self.await_running(name)

    def delete(self, name: str) -> None:
        """Removes the connector, if it exists; its offsets and its replication slot stay."""
        self._request("DELETE", _path(name), allowed=(404,))

    def _request(
        self,
        method: str,
        path: str,
        *,
        json: dict[str, str] | None = None,
        timeout: float = _REQUEST_TIMEOUT_SECONDS,
        allowed: tuple[int, ...] = (),
    ) -> requests.Response:
        try:
            answer = requests.request(
                method, self.url + path, json=json, timeout=timeout, auth=self._login, verify=self._verify
            )
        except requests.RequestException as failure:
            raise self._unreachable() from failure
        if answer.ok or answer.status_code in allowed:
            return answer
        if answer.status_code in (401, 403):
            raise SourceRefused(
                f"Kafka Connect at {self.url} refuses the user ({answer.status_code})",
                "correct user and password in source.connect, or let the user read connectors",
            )
        if answer.status_code >= 500:
            raise Unreachable(
                f"Kafka Connect at {self.url} answered {answer.status_code} to {method} {path}",
                "read its log, then try again",
            )
        raise SourceRefused(
            f"Kafka Connect at {self.url} refused {method} {path}: {_message(answer)}",
            "correct the connector's configuration",
        )

    def _absent(self, name: str) -> SourceRefused:
        names = self.names()
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]!r}? Else " if near else f"it has {', '.join(names) or 'none'}; "
        return SourceRefused(
            f"Kafka Connect at {self.url} has no connector {name!r}",
            f"{hint}correct source.connect.connector, or register it: `ingest connector recipe postgres`",
        )

    def _unreachable(self) -> Unreachable:
        return Unreachable(
            f"no Kafka Connect worker answers at {self.url}",
            "see that it runs and can be reached from here, then try again",
        )


def _path(name: str) -> str:
    return f"/connectors/{quote(name, safe='')}"


def _message(answer: requests.Response) -> str:
    try:
        return " ".join(str(answer.json()["message"]).split())
    except (ValueError, KeyError):
        return f"status {answer.status_code}"


def _root_class(trace: str) -> str:
    """Returns the class of a stack trace's root cause, without its message, which may quote a row."""
    causes = [line for line in trace.splitlines() if line and not line.startswith(("\t", " "))]
    return causes[-1].removeprefix("Caused by: ").split(":")[0]
