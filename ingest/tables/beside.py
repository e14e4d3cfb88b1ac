"""What is done beside something else that a commit waits for: on threads that are kept, for each has a connection to
the JVM of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

_T = TypeVar("_T")
_THREADS = 8
_BESIDE = ThreadPoolExecutor(_THREADS, thread_name_prefix="beside")


@contextmanager
def beside(work: Callable[[], _T]) -> Iterator[Future[_T]]:
    """Does `work` meanwhile. It has ended when the block has, however that ends; `work` itself uses none of this."""
    future = _BESIDE.submit(work)
    try:
        yield future
    finally:
        wait([future])
