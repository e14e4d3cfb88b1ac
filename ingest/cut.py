"""A long plan cut in two: what it comes to so far is kept as rows, and what follows plans over plain rows."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame

_OF_THREAD = threading.local()


def cut(frame: DataFrame) -> DataFrame:
    """The rows of `frame`, computed once, where they are first asked for. Gone with the process, or with `released`."""
    rows = held(frame)
    kept: list[DataFrame] | None = getattr(_OF_THREAD, "kept", None)
    if kept is not None:
        kept.append(rows)
    return rows


def held(frame: DataFrame) -> DataFrame:
    """The same until somebody says `let_go`."""
    rows = frame.localCheckpoint(eager=False)
    # Spark forgets the metrics of a plan that nobody holds, and then complains of every task that reports to them.
    vars(rows)["computed_from"] = frame
    return rows


@contextmanager
def released() -> Iterator[None]:
    """Lets go, at its end, of the rows that this thread has cut in it: the JVM would keep them until its collector
    comes by, and meanwhile copy them about."""
    outer = getattr(_OF_THREAD, "kept", None)
    kept: list[DataFrame] = []
    _OF_THREAD.kept = kept
    try:
        yield
    finally:
        _OF_THREAD.kept = outer
        for rows in kept:
            let_go(rows)


def let_go(rows: DataFrame) -> None:
    """Of rows that were cut: nobody will ask for them any more, nor for anything of them that isn't cut itself."""
    rows._jdf.queryExecution().logical().rdd().unpersist(False)
