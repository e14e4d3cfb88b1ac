"""Checkpoints of tables' logs: written after a commit, and for a stream beside what it does next.

Delta itself writes one within the commit at which it is due, and whoever commits waits for it: longer than for a batch.
What a commit says stands without: until there is a checkpoint, readers open more files of the log.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from py4j.protocol import Py4JError

from ingest.delta.classes import DeltaClasses
from ingest.spark.background import defer

_log = logging.getLogger(__name__)
_EVERY = 100
"""Commits: Delta's default of 10 costs a small batch seconds each tenth time; a hundred files are read at once."""

PROPERTIES = {"delta.checkpointInterval": "1000"}
"""Of a table: when Delta writes one by itself, should those written here fail."""


def committed(
    delta: DeltaClasses, log: Any, transaction: Any, actions: Sequence[Any], told: Mapping[str, Any] | None
) -> int:
    """The version that `actions` have become. `told`: what the commit says of itself."""
    version = int(transaction.commit(delta.sequence(actions), delta.write(told), delta.empty))
    if version and version % _EVERY == 0:
        snapshot = log.unsafeVolatileSnapshot()
        # An older table's property may say the same as is said here.
        if version % int(log.checkpointInterval(snapshot.metadata())):
            defer(partial(_write, delta, log, snapshot), lambda written: written())
    return version


def _write(delta: DeltaClasses, log: Any, snapshot: Any) -> None:
    path = str(log.dataPath())
    try:
        log.checkpoint(snapshot, delta.none)
    except Py4JError as error:
        # The commit stands: no reason to stop.
        _log.warning("%s has no checkpoint of its newest commits: %s", path, type(error).__name__)
