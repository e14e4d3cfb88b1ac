"""The mapping of an object store's error codes: temporary failures and refusals."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from ingest.archive import ObjectStore
from ingest.errors import IngestError, SourceRefused, Unreachable

_BODY = "<?xml version='1.0'?><Error><Code>{}</Code><Message>Unreachable, 503, SlowDown</Message></Error>"


def error_for(status: int, code: str) -> IngestError:
    """Returns the error for a server that answers with this status and body."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = _BODY.format(code).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Suppresses the server's log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = Thread(target=server.serve_forever)
    thread.start()
    options = {"endpoint_url": f"http://127.0.0.1:{server.server_port}", "region_name": "x"}
    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}
    try:
        with pytest.raises(IngestError) as failed:
            ObjectStore("s3://bucket/x", options | keys).get("key")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    return failed.value


@pytest.mark.parametrize(
    ("status", "code"),
    [(403, "AccessDenied"), (404, "NoSuchBucket"), (400, "InvalidBucketName"), (403, "InvalidObjectState")],
)
def test_refusal_is_not_retried(status: int, code: str) -> None:
    error = error_for(status, code)
    assert isinstance(error, SourceRefused)
    assert not error.retried
    assert f"({code})" in error.problem


@pytest.mark.long
@pytest.mark.parametrize(("status", "code"), [(429, "TooManyRequests"), (408, "Whatever")])
def test_throttling_is_retried(status: int, code: str) -> None:
    assert isinstance(error_for(status, code), Unreachable)
