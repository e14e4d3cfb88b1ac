"""The stack of Postgres, Kafka, Kafka Connect, S3 and a schema registry: starts and stops its services in order."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self, TypeVar

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from ingest.errors import ConfigError, PortTaken
from ingest.stack.connect import ConnectWorker
from ingest.stack.kafka import Kafka
from ingest.stack.postgres import Postgres
from ingest.stack.registry import Registry
from ingest.stack.s3 import S3
from ingest.stack.service import Service, ServiceStatus

CHANGELOG_PARTS = ("postgres", "kafka", "connect")
"""The services from a database to a topic."""
PARTS = (*CHANGELOG_PARTS, "s3", "registry")
EXTERNAL_VARIABLES = {
    "postgres": "INGEST_POSTGRES_DSN",
    "kafka": "INGEST_KAFKA_BOOTSTRAP_SERVERS",
    "connect": "INGEST_CONNECT_URL",
    "s3": "INGEST_S3_ENDPOINT",
    "registry": "INGEST_REGISTRY_URL",
}
S = TypeVar("S", bound=Service)
_STATE_FILE = "stack.json"
_STARTS = 3
"""How often a stack starts, with other ports each time, where processes take the ports that were free just before."""
_TERMINATED = 128 + signal.SIGTERM


class Stack:
    """The services in one folder, as a context manager.

        with Stack() as stack:
            psycopg.connect(stack.postgres.dsn)

    No service that `with` started outlives it: not after an exception, Ctrl-C or SIGTERM, and on Linux not even when
    this process is killed. Enter it on a thread that lives as long as the stack (the main one), since the kernel ends
    the services with that thread. Services that ran in the folder before are used, and left running.

    A part whose variable in `EXTERNAL_VARIABLES` is set is external: it is checked, not started.

    Args:
        folder: the folder of data and logs, with a subfolder per service; a temporary one if None.
        parts: a selection of `PARTS`.
        keep: keep the folder at the end. Otherwise it is removed, unless it existed before.
        tethered: False lets the services outlive this process; call `stop` to end them.
        reads_environment: False ignores the variables: parts stay external or embedded as they were started.

    Raises:
        ConfigError: unknown parts, or Connect without a Kafka.
    """

    def __init__(
        self,
        folder: Path | None = None,
        parts: Sequence[str] = CHANGELOG_PARTS,
        keep: bool = False,
        *,
        tethered: bool = True,
        reads_environment: bool = True,
    ) -> None:
        unknown = set(parts) - set(PARTS)
        if unknown:
            raise ConfigError(f"the stack has no part {', '.join(sorted(unknown))}", f"choose from {', '.join(PARTS)}")
        self.parts = tuple(part for part in PARTS if part in parts)
        self._removed_at_exit = not keep and (folder is None or not folder.exists())
        self.folder = folder.expanduser().absolute() if folder else _temporary_folder()
        self._started: list[Service] = []
        self._restore_handler: Callable[[], None] = lambda: None
        known = {*self.parts, *_recorded(self.folder)["parts"]}
        self._external = _recorded(self.folder)["external"] | (
            _from_environment(self.parts) if reads_environment else {}
        )
        self._services = self._assembled([part for part in PARTS if part in known], tethered)

    @classmethod
    def at(cls, folder: Path) -> Self:
        """Returns the stack that was started in `folder`, with the same parts; starts nothing.

        Raises:
            ConfigError: no stack was ever started there.
        """
        state_file = folder / _STATE_FILE
        if not state_file.exists():
            raise ConfigError(f"there is no stack in {folder}", f"start one: `ingest stack up --folder {folder}`")
        return cls(folder, tuple(_recorded(folder)["parts"]), keep=True, tethered=False, reads_environment=False)

    def _assembled(self, parts: Sequence[str], tethered: bool) -> dict[str, Service]:
        """Returns the services of `parts`: also those in the folder that this stack doesn't start."""
        external = self._external
        services: dict[str, Service] = {}
        postgres = Postgres(self.folder, external.get("postgres"), tethered=tethered)
        if "postgres" in parts:
            services["postgres"] = postgres
        kafka = Kafka(self.folder, external.get("kafka"), tethered=tethered)
        if "kafka" in parts:
            services["kafka"] = kafka
        if "connect" in parts:
            if "connect" not in external and "kafka" not in parts and not kafka.external:
                raise ConfigError(
                    "Kafka Connect needs a Kafka",
                    f"add the part kafka, or set {EXTERNAL_VARIABLES['kafka']}",
                )
            services["connect"] = ConnectWorker(
                self.folder,
                external.get("connect"),
                # Lazy: reading the port of an embedded broker would choose and store one.
                bootstrap_servers=lambda: kafka.bootstrap_servers,
                variables=lambda: postgres.environment if "postgres" in parts else {},
                has_registry="registry" in parts,
                tethered=tethered,
            )
        if "s3" in parts:
            services["s3"] = S3(self.folder, external.get("s3"), tethered=tethered)
        if "registry" in parts:
            services["registry"] = Registry(self.folder, external.get("registry"), tethered=tethered)
        return services

    @property
    def postgres(self) -> Postgres:
        """The database. Raises ConfigError if this stack has none."""
        return self._part(Postgres)

    @property
    def kafka(self) -> Kafka:
        """The broker. Raises ConfigError if this stack has none."""
        return self._part(Kafka)

    @property
    def connect(self) -> ConnectWorker:
        """The Kafka Connect worker. Raises ConfigError if this stack has none."""
        return self._part(ConnectWorker)

    @property
    def s3(self) -> S3:
        """The S3 server. Raises ConfigError if this stack has none."""
        return self._part(S3)

    @property
    def registry(self) -> Registry:
        """The schema registry. Raises ConfigError if this stack has none."""
        return self._part(Registry)

    def _part(self, kind: type[S]) -> S:
        service = self._services.get(kind.name)
        if not isinstance(service, kind):
            raise ConfigError(f"this stack has no {kind.name}", f"add {kind.name!r} to its parts")
        return service

    @property
    def _wanted(self) -> list[Service]:
        """The services of this stack's parts, without others in the folder."""
        return [service for part, service in self._services.items() if part in self.parts]

    def status(self) -> list[ServiceStatus]:
        """Returns the status of every part that was ever started in the folder, in the order of `PARTS`."""
        return [service.status() for service in self._services.values()]

    def start(self) -> None:
        """Starts every part of this stack that does not run, and waits until all answer.

        Raises:
            StackFailed, PrerequisiteMissing, Unreachable: as `Service.start`; the started services are stopped again.
        """
        starting = Retrying(retry=retry_if_exception_type(PortTaken), stop=stop_after_attempt(_STARTS), reraise=True)
        starting(self._start)

    def _start(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._started = [service for service in self._wanted if service.status().state == "stopped"]
            self._record()
            with ThreadPoolExecutor(max_workers=len(PARTS)) as pool:
                list(pool.map(Service.prepare, self._wanted))
            for service in self._wanted:
                service.launch()
            for service in self._wanted:
                service.await_healthy()
        except PortTaken:
            new = [service for service in self._started if service.is_new]
            self.stop(self._started)
            for service in new:
                shutil.rmtree(service.folder)
            raise
        except BaseException:
            self.stop(self._started)
            raise

    def stop(self, services: Iterable[Service] | None = None) -> None:
        """Stops `services`, or all parts, consumers before their sources. Data stays; external parts go on."""
        chosen = list(self._services.values()) if services is None else list(services)
        failures: list[BaseException] = []
        for service in reversed(chosen):
            try:
                service.stop()
            except BaseException as failure:  # noqa: BLE001 - a second Ctrl-C must not leave others running
                failures.append(failure)
        self._started = [service for service in self._started if service not in chosen]
        if failures:
            raise failures[0]

    def purge(self) -> None:
        """Stops all parts and removes their data, logs and addresses from the folder, and the folder if it is empty."""
        self.stop()
        for part in PARTS:
            shutil.rmtree(self.folder / part, ignore_errors=True)
        (self.folder / _STATE_FILE).unlink(missing_ok=True)
        with suppress(OSError):  # the folder holds other files
            self.folder.rmdir()

    def require_running(self) -> None:
        """Raises StackFailed if an embedded service has ended."""
        for service in self._wanted:
            if not service.external and service.running is None:
                raise service.failure("has ended")

    def _record(self) -> None:
        state = {"parts": list(self._services), "external": self._external}
        state_file = self.folder / _STATE_FILE
        state_file.touch(mode=0o600)  # an external DSN may hold a password
        state_file.write_text(json.dumps(state, indent=1))

    def __enter__(self) -> Self:
        self._restore_handler = _terminate_by_exception()
        try:
            self.start()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop(self._started)
        finally:
            self._leave()

    def _leave(self) -> None:
        self._restore_handler()
        if self._removed_at_exit:
            shutil.rmtree(self.folder, ignore_errors=True)


def _temporary_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="ingest-stack-"))
    folder.chmod(0o711)  # Postgres may run as another user, who must be able to enter its subfolder
    return folder


def _recorded(folder: Path) -> dict[str, Any]:
    """Returns the parts that were ever started in `folder`, and the addresses of the external ones."""
    state_file = folder / _STATE_FILE
    if not state_file.exists():
        return {"parts": [], "external": {}}
    found: dict[str, Any] = json.loads(state_file.read_text())
    return found


def _from_environment(parts: Sequence[str]) -> dict[str, str]:
    """Returns the addresses of external parts, and of an external Kafka for an embedded Connect."""
    wanted = {*parts, "kafka"} if "connect" in parts else {*parts}
    found = {part: os.environ.get(variable, "") for part, variable in EXTERNAL_VARIABLES.items() if part in wanted}
    return {part: address for part, address in found.items() if address}


def _terminate_by_exception() -> Callable[[], None]:
    """Installs a SIGTERM handler that raises SystemExit, and returns a function that removes it.

    Does nothing if another handler is installed, or off the main thread, where Python doesn't allow it.
    """
    on_main_thread = threading.current_thread() is threading.main_thread()
    if not on_main_thread or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return lambda: None

    def leave(number: int, frame: FrameType | None) -> Any:
        raise SystemExit(_TERMINATED)

    signal.signal(signal.SIGTERM, leave)
    return _reset_handler


def _reset_handler() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
