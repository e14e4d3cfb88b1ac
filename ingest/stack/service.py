"""What all services of the stack share: a folder, a process, a start that is known to have worked, a stop."""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

import psutil
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from ingest.errors import ConfigError, StackFailed, Unreachable
from ingest.stack import process
from ingest.stack.ports import remembered_ports, require_free

State = Literal["running", "stopped", "external"]


@dataclass(frozen=True)
class ServiceStatus:
    """One service of `ingest stack status`. External ones have no `pid` or `log`.

    `access` is what a client needs beside the address, by name: a user, the file that holds the password. Neither it
    nor `address` holds a secret.
    """

    service: str
    state: State
    healthy: bool
    address: str
    pid: int | None
    log: str | None
    access: Mapping[str, str] = field(default_factory=dict)


class Service(ABC):
    """A real service in `<folder>/<name>/{data,log}`, or one that its user runs elsewhere (`external`).

    A service belongs to its folder, not to the Python object: another process that opens the same folder sees
    whether it runs and can stop it. Ports and data outlive `stop` and `kill`.
    """

    name: ClassVar[str]
    port_names: ClassVar[tuple[str, ...]]
    start_timeout_seconds: ClassVar[float] = 300.0
    """Of a process that lives: one that has ended is noticed at once."""
    stop_timeout_seconds: ClassVar[float] = 20.0
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM
    death_signal: ClassVar[signal.Signals] = signal.SIGKILL

    def __init__(self, stack_folder: Path, external: str | None = None, *, tethered: bool = True) -> None:
        """
        Args:
            stack_folder: the folder of the whole stack; this service uses one below it.
            external: the address of one that its user runs; nothing is then started or stopped.
            tethered: the process ends with this one, even if this one is killed.
        """
        self.external = external
        self.folder = stack_folder.absolute() / self.name
        self.data = self.folder / "data"
        self.log_file = self.folder / "log" / f"{self.name}.log"
        self._record_file = self.folder / "process.json"
        self._tethered = tethered
        self._process: psutil.Process | None = None

    @property
    @abstractmethod
    def address(self) -> str:
        """`host:port` or a URL, without secrets."""

    @abstractmethod
    def check(self) -> None:
        """Raises Unreachable unless the service answers a real request within a few seconds."""

    @abstractmethod
    def _prepare(self) -> None:
        """Make the data folder and configuration; cheap when they are there."""

    @abstractmethod
    def _command(self) -> list[str]:
        """What to execute; it must not fork itself away."""

    @property
    def access(self) -> dict[str, str]:
        """What a client needs beside the address, without secrets: a user, a password's file."""
        return {}

    @property
    def variables(self) -> dict[str, str]:
        """Added to the environment of the process."""
        return {}

    def _after_start(self) -> None:  # noqa: B027 - most services have nothing to be told
        """What the service can't remember by itself is told to it again here."""

    @property
    def running(self) -> psutil.Process | None:
        """The running process, also where another program started it; None if it does not run."""
        if self._process is None or not process.is_alive(self._process):
            self._process = None if self.external else process.recorded(self._record_file)
        return self._process

    @property
    def pid(self) -> int | None:
        """Of the running process, else None."""
        return self.running.pid if self.running else None

    def status(self) -> ServiceStatus:
        """How the service does right now."""
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
        """Start and wait until it answers. Does nothing but check where it runs already, or is external.

        Raises:
            StackFailed: it ended, or did not answer in time; names the log and its last lines.
            PrerequisiteMissing: Java, a port or a package that this machine lacks.
        """
        self.prepare()
        self.launch()
        self.await_healthy()

    def prepare(self) -> None:
        """First part of `start`: everything that needs no running process. May be called on any thread."""
        if self.external or self.running:
            return
        for folder in (self.folder, self.data, self.log_file.parent):
            folder.mkdir(parents=True, exist_ok=True)
        for port in self.ports.values():
            require_free(port, self.name)
        self._prepare()

    def launch(self) -> None:
        """Second part of `start`, on the thread that owns the stack: a tethered child ends with it."""
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
        """Last part of `start`: returns when the service answers."""
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
            raise self.failure("ended while it was starting")
        self.check()

    def failure(self, what: str) -> StackFailed:
        """An error that names this service's log and shows its end."""
        return StackFailed(
            f"the embedded {self.name} {what}; the end of its log:\n{process.last_lines(self.log_file)}\n",
            f"read {self.log_file}, then try again",
        )

    def stop(self) -> None:
        """Stop in order, by force after `stop_timeout_seconds`. Data and ports stay. External ones go on.

        A process that this folder's service started before its user set an external address is stopped as well.
        """
        if found := self.running or process.recorded(self._record_file):
            process.stop(found, self.stop_signal, self.stop_timeout_seconds)
        self._forget()

    def kill(self) -> None:
        """SIGKILL, as a crash would. Data and ports stay.

        Raises:
            ConfigError: it is external; that is its user's to kill.
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
        """This folder's ports by name."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return remembered_ports(self.folder / "ports.json", self.port_names)
