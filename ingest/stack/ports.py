"""Chooses free TCP ports on 127.0.0.1 and stores them per folder."""

from __future__ import annotations

import json
import random
import socket
from pathlib import Path
from threading import Lock

from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from ingest.errors import PrerequisiteMissing

HOST = "127.0.0.1"
_RANGE = range(10_000, 32_000)
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_EPHEMERAL_ELSEWHERE = "49152 65535"
"""The range of RFC 6335, for systems without the file."""
_ATTEMPTS = 200
_choosing = Lock()
_RELEASE_SECONDS = 5.0  # a process that was just killed may hold its ports for a moment


def remembered_ports(file: Path, names: tuple[str, ...]) -> dict[str, int]:
    """Returns name → port: those stored in `file`, or free ones, which are then stored there.

    Ports stay the same for the life of a folder, because clients and stored connectors contain them. Concurrent callers
    in one process get the same ports.
    """
    with _choosing:
        if not file.exists():
            chosen: dict[str, int] = {}
            for name in names:
                chosen[name] = _free_port(taken=set(chosen.values()))
            file.write_text(json.dumps(chosen))
        return {name: int(json.loads(file.read_text())[name]) for name in names}


def require_free(port: int, service: str) -> None:
    """Raises PrerequisiteMissing if another process listens on `port` and still does after `_RELEASE_SECONDS`."""
    polling = Retrying(
        retry=retry_if_result(lambda free: not free), stop=stop_after_delay(_RELEASE_SECONDS), wait=wait_fixed(0.1)
    )
    try:
        polling(is_free, port)
    except RetryError as taken:
        raise PrerequisiteMissing(
            f"port {port}, which this folder's {service} has, is in use",
            "stop the process that listens there, or choose another folder",
        ) from taken


def _free_port(taken: set[int]) -> int:
    ports = _candidates()
    for port in random.sample(ports, _ATTEMPTS):
        if port not in taken and is_free(port):
            return port
    raise PrerequisiteMissing(
        f"no free port on {HOST} between {min(ports)} and {max(ports)}", "close some listening programs"
    )


def _candidates() -> list[int]:
    """Returns the ports of `_RANGE` that the system gives to no outgoing connection; all if there are too few.

    While a service is down, no connection takes such a port, and a client that polls it can't connect to itself.
    """
    found = _EPHEMERAL.read_text() if _EPHEMERAL.exists() else _EPHEMERAL_ELSEWHERE
    first, last = map(int, found.split())
    others = [port for port in _RANGE if not first <= port <= last]
    return others if len(others) >= _ATTEMPTS else list(_RANGE)


def is_free(port: int) -> bool:
    """Returns whether a service could listen on `port` now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a connection in TIME_WAIT doesn't count
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
