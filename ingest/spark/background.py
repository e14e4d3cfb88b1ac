"""Work on background threads. The threads are kept, because each has its own py4j connection to the JVM.

A commit waits for some of this work (`in_background`). Other work may be late: a stream defers it (`deferred_jobs`,
`defer`), so that it runs while the next batches do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, TypeVar

_T = TypeVar("_T")
_THREADS = 8
_POOL = ThreadPoolExecutor(_THREADS, thread_name_prefix="background")


@contextmanager
def in_background(work: Callable[[], _T]) -> Iterator[Future[_T]]:
    """Runs `work` on a background thread while the block runs, and waits for it on exit. `work` itself must not use
    the background threads: they are few, and waiting for each other would be a deadlock."""
    future = _POOL.submit(work)
    try:
        yield future
    finally:
        wait([future])


def submit_in_background(work: Callable[[], _T]) -> Callable[[], _T]:
    """Starts `work` on a background thread. Returns the function that waits for it, and returns its value or raises its
    error. `work` itself must not use the background threads."""
    return _POOL.submit(work).result


class _DeferredJobs:
    """Deferred jobs on one thread, in the order of their submission."""

    now: _DeferredJobs | None = None
    """Those of the `deferred_jobs` block that is open."""

    def __init__(self, thread: ThreadPoolExecutor) -> None:
        self._thread = thread
        self._submitted: deque[tuple[Future[Any], Callable[[Callable[[], Any]], object]]] = deque()

    def submit(self, work: Callable[[], Any], then: Callable[[Callable[[], Any]], object]) -> None:
        self._submitted.append((self._thread.submit(work), then))

    def finish_completed(self) -> None:
        """Calls `then` of the jobs at the head of the queue whose work is done."""
        while self._submitted and self._submitted[0][0].done():
            work, then = self._submitted.popleft()
            then(work.result)


@contextmanager
def deferred_jobs() -> Iterator[Callable[[], None]]:
    """Runs deferred jobs on a background thread, one after the other; all have finished on exit. Yields the function
    that finishes the jobs whose work is done, for the caller to call where no other thread uses their tables."""
    before = _DeferredJobs.now
    with ThreadPoolExecutor(1, thread_name_prefix="deferred") as thread:
        _DeferredJobs.now = jobs = _DeferredJobs(thread)
        try:
            yield jobs.finish_completed
        finally:
            _DeferredJobs.now = before
    jobs.finish_completed()


def defer(work: Callable[[], _T], then: Callable[[Callable[[], _T]], object]) -> None:
    """Defers `work`, and calls `then` after it with a function that returns the value of `work` or raises its error.
    Outside of `deferred_jobs` both happen at once, on this thread."""
    if _DeferredJobs.now is not None:
        _DeferredJobs.now.submit(work, then)
    else:
        then(work)
