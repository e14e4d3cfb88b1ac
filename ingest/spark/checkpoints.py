"""Local checkpoints: a DataFrame's rows are computed once, and queries over them are planned over plain rows."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame

from ingest.jvm.plans import unpersist_checkpoint

_OF_THREAD = threading.local()


def checkpoint(frame: DataFrame, eager: bool = False) -> DataFrame:
    """Returns `frame` as a local checkpoint: computed by the first action that reads it, or at once where `eager`.
    `checkpoint_scope` unpersists it; outside of one it stays until the process ends."""
    # Spark drops a plan's metrics with the plan, and then logs a warning for every task that reports to them.
    return add_to_scope(frame.localCheckpoint(eager=eager), computed_from=frame)


def add_to_scope(rows: DataFrame, computed_from: object = None) -> DataFrame:
    """Returns a checkpointed frame after it was added to this thread's `checkpoint_scope`, if there is one.
    `computed_from`: an object that must live as long as the frame."""
    if computed_from is not None:
        vars(rows)["computed_from"] = computed_from
    scope: list[DataFrame] | None = getattr(_OF_THREAD, "scope", None)
    if scope is not None:
        scope.append(rows)
    return rows


@contextmanager
def checkpoint_scope() -> Iterator[None]:
    """Unpersists on exit every frame that this thread checkpointed in the block. The JVM would keep their rows until
    its garbage collector finds them."""
    outer = getattr(_OF_THREAD, "scope", None)
    checkpointed = _OF_THREAD.scope = list[DataFrame]()
    try:
        yield
    finally:
        _OF_THREAD.scope = outer
        for rows in checkpointed:
            unpersist(rows)


def unpersist(rows: DataFrame) -> None:
    """Unpersists a checkpointed frame. Frames derived from it become invalid, unless they are checkpointed themselves
    and computed."""
    unpersist_checkpoint(rows)
