"""Merges the tables of a slice beside each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TypeVar

_Batch = TypeVar("_Batch")
_Merged = TypeVar("_Merged")


def merged_beside(
    pool: ThreadPoolExecutor, merge: Callable[[_Batch], _Merged], batches: Iterable[_Batch]
) -> list[_Merged]:
    """Returns what `merge` returns for each batch. If one raises, no further one begins, and its error is raised once
    those that have begun are done: they read rows of the slice, which the caller lets go then."""
    merging = [pool.submit(merge, batch) for batch in batches]
    try:
        done, _ = wait(merging, return_when=FIRST_EXCEPTION)
        failed = next((one for one in merging if one in done and one.exception() is not None), None)
    finally:
        for one in merging:
            one.cancel()
        wait(merging)
    return [one.result() for one in ([failed] if failed is not None else merging)]
