"""The newest snapshot of a table.

To see whether it has a newer one Delta lists the log, all of it, which takes longer with every commit: a batch a second
leaves 7,200 files in an hour, whose listing takes 70 ms on a local disk. Versions have no gaps, so here the next one is
asked for by its name.
"""

from __future__ import annotations

import time
from functools import cached_property
from typing import Any

from py4j.protocol import Py4JJavaError

from ingest.delta import commit_log
from ingest.delta.classes import DeltaClasses

_FRESH = 1.0
"""Seconds."""


class SnapshotCache:
    """Of the table of one `DeltaLog`."""

    def __init__(self, delta: DeltaClasses, log: Any) -> None:
        self._delta = delta
        self._log = log
        self._looked = -_FRESH

    def now(self) -> Any:
        """Whatever anybody has committed by now is in it."""
        if not self._is_known():
            self._log.update(False, self._delta.none, self._delta.none)
        self._looked = time.monotonic()
        return self._log.unsafeVolatileSnapshot()

    def lately(self) -> Any:
        """As of the last second: who else commits meanwhile is noticed at our own commit."""
        fresh = time.monotonic() - self._looked < _FRESH
        return self._log.unsafeVolatileSnapshot() if fresh else self.now()

    def _is_known(self) -> bool:
        """Whether the snapshot that Delta has is the newest: its commit is the one that it was, and none follows."""
        snapshot = self._log.unsafeVolatileSnapshot()
        version = int(snapshot.version())
        if version < 0:
            return False
        own, next_ = (commit_log.file_of(self._delta, self._log, v) for v in (version, version + 1))
        try:
            written = self._files.getFileStatus(own).getModificationTime()
            return bool(
                written == snapshot.logSegment().lastCommitFileModificationTimestamp() and not self._files.exists(next_)
            )
        except Py4JJavaError:
            # Not even its own commit is there any more. What is, or what went wrong, Delta finds by listing.
            return False

    @cached_property
    def _files(self) -> Any:
        return self._log.logPath().getFileSystem(self._log.newDeltaHadoopConf())
