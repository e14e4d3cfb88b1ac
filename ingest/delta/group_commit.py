"""Commits in one commit what several threads hand in at about the same time.

Threads that each append a row to one table wait for each other, and its readers open a file for each row. Here one
thread commits, and what the others hand in meanwhile is the next commit.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

from ingest.delta.conflict_retry import CONFLICTS
from ingest.jvm.causes import JAVA_ERRORS

Item = TypeVar("Item")
_FAULTS_OF_ITEMS = (*CONFLICTS, *JAVA_ERRORS, TypeError, ValueError)
"""Errors that one item of a commit may be the reason for."""


class GroupCommit(Generic[Item]):
    """Commits the items that threads hand in."""

    def __init__(self, commit: Callable[[Sequence[Item]], None]) -> None:
        """`commit`: commits all of these items, or raises and commits none."""
        self._commit = commit
        self._waiting = deque[tuple[Item, Future[None]]]()
        self._lock = threading.Lock()

    def commit(self, item: Item) -> None:
        """Returns once the item is committed. Raises what its commit raises; where that may be the fault of another
        item of the commit, each is committed alone first."""
        committed = Future[None]()
        self._waiting.append((item, committed))
        with self._lock:
            if not committed.done():
                self._commit_group([self._waiting.popleft() for _ in range(len(self._waiting))])
        committed.result()

    def _commit_group(self, group: Sequence[tuple[Item, Future[None]]]) -> None:
        error: BaseException | None = None
        try:
            self._commit([item for item, _ in group])
        except BaseException as raised:  # noqa: BLE001 - the threads that wait raise it
            error = raised
        if isinstance(error, _FAULTS_OF_ITEMS) and len(group) > 1:
            for one in group:
                self._commit_group([one])
            return
        for _, committed in group:
            if error is None:
                committed.set_result(None)
            else:
                committed.set_exception(error)
