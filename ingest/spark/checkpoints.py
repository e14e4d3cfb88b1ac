"""A long plan cut in two: what it comes to so far is kept as rows, and what follows plans over plain rows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from pyspark.sql import DataFrame

_OF_THREAD = threading.local()
_T = TypeVar("_T")


def checkpoint(frame: DataFrame, eager: bool = False) -> DataFrame:
    """The rows of `frame`, computed once, where they are first asked for, or `now`. Gone with the process, or with
    `released`."""
    return add_to_scope(checkpoint_until_unpersisted(frame, eager))


def add_to_scope(rows: DataFrame, computed_from: object = None) -> DataFrame:
    """Rows that are computed once: gone with the process, or with `released`. What they are `computed_from` stays
    until then."""
    if computed_from is not None:
        vars(rows)["computed_from"] = computed_from
    all_kept: list[DataFrame] | None = getattr(_OF_THREAD, "kept", None)
    if all_kept is not None:
        all_kept.append(rows)
    return rows


def checkpoint_until_unpersisted(frame: DataFrame, eager: bool = False) -> DataFrame:
    """What `cut` gives, until somebody says `let_go`."""
    rows = frame.localCheckpoint(eager=eager)
    # Spark forgets the metrics of a plan that nobody holds, and then complains of every task that reports to them.
    vars(rows)["computed_from"] = frame
    return rows


@contextmanager
def checkpoint_scope() -> Iterator[None]:
    """Lets go, at its end, of the rows that this thread has cut in it: the JVM would keep them until its collector
    comes by, and meanwhile copy them about."""
    cut_here: list[DataFrame] = []
    try:
        with _kept_in(cut_here):
            yield
    finally:
        for rows in cut_here:
            unpersist(rows)


def in_same_scope(work: Callable[[], _T]) -> Callable[[], _T]:
    """`work` for another thread: what it cuts there is let go with what this one has cut."""
    cut_here = getattr(_OF_THREAD, "kept", None)

    def there() -> _T:
        with _kept_in(cut_here):
            return work()

    return there


@contextmanager
def _kept_in(cut_here: list[DataFrame] | None) -> Iterator[None]:
    """What this thread cuts is noted there."""
    outer = getattr(_OF_THREAD, "kept", None)
    _OF_THREAD.kept = cut_here
    try:
        yield
    finally:
        _OF_THREAD.kept = outer


def unpersist(rows: DataFrame) -> None:
    """Of rows that were cut: nobody will ask for them any more, nor for anything of them that isn't cut itself."""
    rows._jdf.queryExecution().logical().rdd().unpersist(False)
