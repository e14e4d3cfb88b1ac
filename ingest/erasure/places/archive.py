"""The archive of the raw changelog, in an object store."""

from __future__ import annotations

from collections.abc import Iterable

from ingest.config import Pipeline
from ingest.erasure.archive_erasing import erase_from_archive, require_archive_read
from ingest.erasure.places.place import Record, Removed
from ingest.erasure.removal_run import RemovalRun


def remove(run: RemovalRun) -> Removed:
    """Empties the archived records of the events emptied in bronze. Raises ConfigError if another program writes the
    archive and its objects may hold such records."""
    context = run.context
    erasure = erase_from_archive(context.spark, context.pipeline, context.emptied_events())
    require_archive_read(context.spark, context.pipeline, context.topic_bronzes)
    if erasure is None:
        return Removed({}, Record.NEVER)
    counts = {
        "records": erasure.records,
        "objects": erasure.objects,
        "versions": erasure.versions,
        "uploads": erasure.uploads,
    }
    # A concurrent archive run may write what bronze held when it began: then the next removal looks again.
    return Removed(counts, Record.NEVER if erasure.unnamed else Record.UNLESS_REPEATED)


def outside(pipeline: Pipeline) -> Iterable[str]:
    return [] if pipeline.archive is None else [pipeline.archive.uri]
