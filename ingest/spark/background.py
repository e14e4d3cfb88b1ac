"""Work on background threads. The threads are kept, because each has its own py4j connection to the JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

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
