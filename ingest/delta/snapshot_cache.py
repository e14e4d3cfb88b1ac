"""The newest snapshot of a table, found without listing its log.

Delta looks for newer versions by listing the whole log, which takes longer with every commit. Versions have no gaps, so
it is enough to look for the file of the next one.
"""

from __future__ import annotations

import math
import time
from functools import cached_property
from typing import Any

from py4j.protocol import Py4JJavaError

from ingest.delta import commit_log
from ingest.delta.classes import DeltaClasses


class SnapshotCache:
    """The newest snapshot of the table of one `DeltaLog`."""

    def __init__(self, delta: DeltaClasses, log: Any, fresh_seconds: float) -> None:
        """`fresh_seconds`: time for which a snapshot is `recent`."""
        self._delta = delta
        self._fresh_seconds = fresh_seconds
        self._log = log
        self._checked = -math.inf

    def newest(self) -> Any:
        """Returns a snapshot with every commit up to this call."""
        if not self._is_newest():
            self._log.update(False, self._delta.none, self._delta.none)
        self._checked = time.monotonic()
        return self._log.unsafeVolatileSnapshot()

    def recent(self) -> Any:
        """Returns a snapshot that was the newest less than `fresh_seconds` ago. Later commits of other writers conflict
        with this writer's own commit."""
        fresh = time.monotonic() - self._checked < self._fresh_seconds
        return self._log.unsafeVolatileSnapshot() if fresh else self.newest()

    def _is_newest(self) -> bool:
        """Returns True if Delta's cached snapshot is the newest: its commit's file is unchanged, and none follows."""
        snapshot = self._log.unsafeVolatileSnapshot()
        version = int(snapshot.version())
        if version < 0:
            return False
        this, following = (commit_log.commit_file(self._delta, self._log, v) for v in (version, version + 1))
        try:
            written = self._files.getFileStatus(this).getModificationTime()
            return bool(
                written == snapshot.logSegment().lastCommitFileModificationTimestamp()
                and not self._files.exists(following)
            )
        except Py4JJavaError:
            # The snapshot's own commit doesn't exist any more, or the store failed: Delta finds out by listing.
            return False

    @cached_property
    def _files(self) -> Any:
        return self._log.logPath().getFileSystem(self._log.newDeltaHadoopConf())
