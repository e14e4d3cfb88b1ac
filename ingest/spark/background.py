"""What is done beside something else: on threads that are kept, for each has a connection to the JVM of its own.

Some of it a commit waits for. The rest can wait itself, and a stream puts it off: it is done beside the next batches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, TypeVar

_T = TypeVar("_T")
_THREADS = 8
_BESIDE = ThreadPoolExecutor(_THREADS, thread_name_prefix="beside")


@contextmanager
def in_background(work: Callable[[], _T]) -> Iterator[Future[_T]]:
    """Does `work` meanwhile. It has ended when the block has, however that ends; `work` itself uses none of this."""
    future = _BESIDE.submit(work)
    try:
        yield future
    finally:
        wait([future])


def submit_in_background(work: Callable[[], _T]) -> Callable[[], _T]:
    """Does `work` from now on. What to call for how it ends; `work` itself uses none of this."""
    return _BESIDE.submit(work).result


class _DeferredJobs:
    """What is put off just now, in its order."""

    now: _DeferredJobs | None = None

    def __init__(self, thread: ThreadPoolExecutor) -> None:
        self._thread = thread
        self._begun: deque[tuple[Future[Any], Callable[[Callable[[], Any]], object]]] = deque()

    def begin(self, work: Callable[[], Any], then: Callable[[Callable[[], Any]], object]) -> None:
        self._begun.append((self._thread.submit(work), then))

    def settle(self) -> None:
        """Ends what is done."""
        while self._begun and self._begun[0][0].done():
            work, then = self._begun.popleft()
            then(work.result)


@contextmanager
def deferred_jobs() -> Iterator[Callable[[], None]]:
    """What can wait is done beside what goes on, one after the other. What to call now and then, from where nothing of
    it is in use: it ends what is done by then. At the end all has been."""
    before = _DeferredJobs.now
    with ThreadPoolExecutor(1, thread_name_prefix="put off") as thread:
        _DeferredJobs.now = one = _DeferredJobs(thread)
        try:
            yield one.settle
        finally:
            _DeferredJobs.now = before
    one.settle()


def defer(work: Callable[[], _T], then: Callable[[Callable[[], _T]], object]) -> None:
    """Does `work`, which can wait, and `then` what it is for, with what tells how that ended. At once, or where such
    work is put off, in its turn."""
    if _DeferredJobs.now is not None:
        _DeferredJobs.now.begin(work, then)
    else:
        then(work)
