"""Checkpoints of Delta logs, written after a commit and, in a stream, in the background.

Delta writes a checkpoint within the commit at which it is due, and the committer waits for it: longer than for a batch.
The commit is durable without it; until there is one, readers open more files of the log.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from py4j.protocol import Py4JError

from ingest.delta.classes import DeltaClasses, Operation
from ingest.spark.background import defer

_log = logging.getLogger(__name__)

PROPERTIES = {"delta.checkpointInterval": "1000"}
"""Of a table: Delta writes a checkpoint itself only if those written here fail."""


def committed(
    delta: DeltaClasses,
    log: Any,
    transaction: Any,
    actions: Sequence[Any],
    operation: Operation,
    user_metadata: Mapping[str, Any] | None,
    commits_per_checkpoint: int,
) -> int:
    """Commits `actions`, and defers a checkpoint where one is due. Returns the new version."""
    if operation is Operation.DELETE:
        delta.register_metrics(transaction)
    committing = delta.operation(operation, user_metadata)
    version = int(transaction.commit(delta.sequence(actions), committing, delta.empty_map))
    if version and version % commits_per_checkpoint == 0:
        snapshot = log.unsafeVolatileSnapshot()
        # An older table may have an interval of its own at which Delta has just written one.
        if version % int(log.checkpointInterval(snapshot.metadata())):
            defer(partial(_write, delta, log, snapshot), lambda written: written())
    return version


def _write(delta: DeltaClasses, log: Any, snapshot: Any) -> None:
    path = str(log.dataPath())
    try:
        log.checkpoint(snapshot, delta.none)
    except Py4JError as error:
        # The commit is durable: no reason to stop.
        _log.warning("%s has no checkpoint of its newest commits: %s", path, type(error).__name__)
