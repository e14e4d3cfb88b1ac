"""A proxy in front of a real HTTP server that injects network and server faults."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal
from urllib.parse import urlsplit

Kind = Literal["refused", "slow", "cut", "lost"]
ALWAYS = 1 << 30


@dataclass
class Fault:
    """A fault of the first `times` requests with this method whose path contains `path`, after `after` good ones.

    Kinds: refused: answers with `status` without forwarding. slow: forwards after `seconds`. cut: the response breaks
    off in the middle of its body. lost: forwards, but answers with `status`."""

    kind: Kind
    method: str = "GET"
    path: str = ""
    times: int = ALWAYS
    status: int = 503
    seconds: float = 1.0
    after: int = 0
    """The number of matching requests that pass first."""


@dataclass
class FaultyProxy:
    """The proxy at `endpoint`. `faults` may be changed at any time; `met` counts the requests with a fault."""

    endpoint: str
    faults: list[Fault] = field(default_factory=list)
    met: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def next_fault(self, method: str, path: str) -> Fault | None:
        with self._lock:
            for fault in self.faults:
                if not fault.times or fault.method != method or fault.path not in path:
                    continue
                if fault.after:
                    fault.after -= 1
                    continue
                fault.times -= 1
                self.met += 1
                return fault
        return None


@contextmanager
def faulty_proxy(upstream: str) -> Iterator[FaultyProxy]:
    """Yields a proxy in front of the server at `upstream`, such as http://127.0.0.1:1234."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    proxy = FaultyProxy(f"http://127.0.0.1:{server.server_port}")
    _Handler.before[server.server_port] = (proxy, urlsplit(upstream).netloc)
    thread = threading.Thread(target=server.serve_forever, name="faulty-proxy")
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        del _Handler.before[server.server_port]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    before: dict[int, tuple[FaultyProxy, str]] = {}  # noqa: RUF012
    """Port → its proxy and the upstream host."""

    server: ThreadingHTTPServer

    def _answer(self) -> None:
        proxy, upstream = self.before[self.server.server_port]
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = proxy.next_fault(self.command, self.path)
        kind = fault.kind if fault else None
        if fault and kind == "slow":
            time.sleep(fault.seconds)
        if fault and kind == "refused":
            self._send(fault.status, {}, b"")
            return
        status, headers, answer = self._passed_on(upstream, body)
        if fault and kind == "lost":
            self._send(fault.status, {}, b"")
        elif kind == "cut":
            self._send(status, headers, answer, len(answer) // 2)
        else:
            self._send(status, headers, answer)

    def _passed_on(self, upstream: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        connection = HTTPConnection(upstream, timeout=60)
        try:
            # Keeps the Host header, which is part of the request's signature.
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in {"expect", "connection"}:
                    connection.putheader(name, value)
            connection.endheaders(body or None)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def _send(self, status: int, headers: dict[str, str], body: bytes, sent: int | None = None) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in {"content-length", "transfer-encoding", "connection"}:
                self.send_header(name, value)
        size = headers.get("Content-Length", str(len(body))) if self.command == "HEAD" else str(len(body))
        self.send_header("Content-Length", size)
        self.end_headers()
        self.wfile.write(body[:sent])
        if sent is not None:
            self.close_connection = True

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _answer  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Suppresses the server's log."""
