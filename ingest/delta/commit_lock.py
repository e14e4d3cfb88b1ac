"""A lock on commits to a table in a local folder.

An object store or HDFS refuses the second of two commits of one version. A local disk does not: its rename replaces the
file, and the first commit would be lost.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


@contextmanager
def commit_lock(path: str) -> Iterator[None]:
    """Locks commits to the Delta table at `path` for other threads and processes of this machine. Does nothing for a
    table in another file system than the local one."""
    uri = _URI.match(path)
    if uri is not None and uri[1] != "file":
        yield
        return
    folder = Path(path if uri is None else "/" + path[uri.end() :].lstrip("/"))
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
