"""The data keys of subjects, which encrypt shredded columns."""

from __future__ import annotations

from ingest.erasure.places.place import Record, Removed
from ingest.erasure.removal_run import RemovalRun
from ingest.pipeline.shredding import shred


def remove(run: RemovalRun) -> Removed:
    """Destroys the keys of all requests, so that no copy of a value can be read."""
    destroyed_keys = shred(run.context.spark, run.context.pipeline)
    return Removed(None, Record.NEVER) if destroyed_keys is None else Removed({"keys": destroyed_keys})
