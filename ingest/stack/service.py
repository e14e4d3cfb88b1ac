"""The base class of the stack's services: a folder, a process, a start with a health check, and a stop."""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

import psutil
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from ingest.errors import ConfigError, PortTaken, StackFailed, Unreachable
from ingest.stack import process
from ingest.stack.ports import is_free, remembered_ports, require_free

State = Literal["running", "stopped", "external"]


@dataclass(frozen=True)
class ServiceStatus:
    """The status of a service. External ones have no `pid` and no `log`.

    `access`: what a client needs besides the address, by name, such as the user and the file with the password. Neither
    `access` nor `address` holds a secret.
    """

    service: str
    state: State
    healthy: bool
    address: str
    pid: int | None
    log: str | None
    access: Mapping[str, str] = field(default_factory=dict)


class Service(ABC):
    """A service in `<folder>/<name>/{data,log}`, or an external one that the user runs elsewhere (`external`).

    A service belongs to its folder, not to the Python object: another process that opens the same folder can see
    its state and stop it. Ports and data outlive `stop` and `kill`.
    """

    name: ClassVar[str]
    port_names: ClassVar[tuple[str, ...]]
    start_timeout_seconds: ClassVar[float] = 300.0
    """The limit for a running process; one that has ended fails at once."""
    stop_timeout_seconds: ClassVar[float] = 20.0
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    death_signal: ClassVar[signal.Signals] = signal.SIGKILL

    def __init__(self, stack_folder: Path, external: str | None = None, *, tethered: bool = True) -> None:
        """
        Args:
            stack_folder: the folder of the whole stack; this service uses a subfolder.
            external: the address of a service that the user runs; it is never started or stopped.
            tethered: the service ends with this process, even if this process is killed.
        """
        self.external = external
        self.folder = stack_folder.absolute() / self.name
        self.data = self.folder / "data"
        self.log_file = self.folder / "log" / f"{self.name}.log"
        self._record_file = self.folder / "process.json"
        self._tethered = tethered
        self._process: psutil.Process | None = None
        self.is_new = False
        """No process of it was ever launched in this folder, so that no client knows its ports."""

    @property
    @abstractmethod
    def address(self) -> str:
        """`host:port` or a URL, without secrets."""

    @abstractmethod
    def check(self) -> None:
        """Raises Unreachable unless the service answers a real request within a few seconds."""

    @abstractmethod
    def _prepare(self) -> None:
        """Creates the data folder and the configuration, unless they exist."""

    @abstractmethod
    def _command(self) -> list[str]:
        """Returns the command of the process, which must stay in the foreground."""

    @property
    def access(self) -> dict[str, str]:
        """Returns what a client needs besides the address, without secrets: the user, the file with the password."""
        return {}

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables of the process, in addition to the inherited ones."""
        return {}

    def _after_start(self) -> None:  # noqa: B027 - most services need nothing
        """Restores state that the service doesn't persist itself, such as connectors."""

    @property
    def running(self) -> psutil.Process | None:
        """The running process, also if another program started it; None if it doesn't run."""
        if self._process is None or not process.is_alive(self._process):
            self._process = None if self.external else process.recorded(self._record_file)
        return self._process

    @property
    def pid(self) -> int | None:
        """The PID of the running process, or None."""
        return self.running.pid if self.running else None

    def status(self) -> ServiceStatus:
        """Returns the current status; `healthy` by a real request."""
        state: State = "external" if self.external else "running" if self.running else "stopped"
        healthy = state != "stopped" and self._answers()
        address = self.address if self.external or self.folder.exists() else ""
        log = None if self.external else str(self.log_file)
        return ServiceStatus(self.name, state, healthy, address, self.pid, log, self.access if address else {})

    def _answers(self) -> bool:
        try:
            self.check()
        except Unreachable:
            return False
        return True

    def start(self) -> None:
        """Starts the service and waits until it answers. Only checks one that runs already or is external.

        Raises:
            StackFailed: it ended or did not answer in time; the message has the log's last lines.
            PortTaken: it ended, and another process has a port of it.
            PrerequisiteMissing: Java, a free port or a package is missing.
        """
        self.prepare()
        self.launch()
        self.await_healthy()

    def prepare(self) -> None:
        """Runs the first part of `start`: everything before the process. May be called on any thread."""
        if self.external or self.running:
            return
        self.is_new = not self.log_file.parent.exists()
        for folder in (self.folder, self.data, self.log_file.parent):
            folder.mkdir(parents=True, exist_ok=True)
        for port in self.ports.values():
            require_free(port, self.name)
        self._prepare()

    def launch(self) -> None:
        """Runs the second part of `start`: launches the process. Call it on the thread that owns the stack, since a
        tethered process ends with that thread."""
        if self.external or self.running:
            return
        self._process = process.launch(
            self._command(),
            log_file=self.log_file,
            record_file=self._record_file,
            death_signal=self.death_signal if self._tethered else None,
            variables=self.variables,
        )

    def await_healthy(self) -> None:
        """Runs the last part of `start`: waits until the service answers."""
        if self.external:
            self.check()
            return
        probing = Retrying(
            retry=retry_if_exception_type(Unreachable),
            stop=stop_after_delay(self.start_timeout_seconds),
            wait=wait_fixed(0.1),
            reraise=True,
        )
        try:
            probing(self._check_alive)
        except Unreachable as late:
            raise self.failure(f"did not answer within {self.start_timeout_seconds:.0f} s") from late
        self._after_start()

    def _check_alive(self) -> None:
        if self.running is None:
            kind = StackFailed if all(map(is_free, self.ports.values())) else PortTaken
            raise self.failure("ended while it was starting", kind)
        self.check()

    def failure(self, what: str, kind: type[StackFailed] = StackFailed) -> StackFailed:
        """Returns an error with the path and the last lines of the service's log."""
        return kind(
            f"the embedded {self.name} {what}; the end of its log:\n{process.last_lines(self.log_file)}\n",
            f"read {self.log_file}, then try again",
        )

    def stop(self) -> None:
        """Stops the service, by SIGKILL after `stop_timeout_seconds`. Data and ports stay. External services go on.

        An embedded process that was started in this folder before the service became external is stopped as well.
        """
        if found := self.running or process.recorded(self._record_file):
            process.stop(found, self.stop_signal, self.stop_timeout_seconds)
        self._forget()

    def kill(self) -> None:
        """Kills the service with SIGKILL, like a crash. Data and ports stay.

        Raises:
            ConfigError: the service is external.
        """
        if self.external:
            raise ConfigError(f"{self.name} at {self.address} is external", "kill it where it runs")
        if found := self.running:
            process.kill(found)
        self._forget()

    def _forget(self) -> None:
        self._process = None
        self._record_file.unlink(missing_ok=True)

    @property
    def ports(self) -> dict[str, int]:
        """Name → port in this folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return remembered_ports(self.folder / "ports.json", self.port_names)
