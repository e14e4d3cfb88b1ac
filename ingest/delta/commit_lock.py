"""Commits to a table in a local folder, by one process at a time.

An object store or HDFS refuses the second of two commits of one version. A local disk does not: a rename replaces
what is there, and the first commit would be gone.
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
    """Held while a commit to the Delta table at `path` is written. Of a store elsewhere there is nothing to hold."""
    uri = _URI.match(path)
    if uri is not None and uri[1] != "file":
        yield
        return
    folder = Path(path if uri is None else "/" + path[uri.end() :].lstrip("/"))
    folder.mkdir(parents=True, exist_ok=True)
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)
