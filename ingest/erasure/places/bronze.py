"""Bronze: the events of the stream and of each backfill, and the subject index, which holds digits of their keys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame, SparkSession

from ingest.backfill.source_readers import source_readers
from ingest.config import Pipeline
from ingest.erasure.places import BRONZE
from ingest.erasure.places.place import FoundRows, Removed
from ingest.erasure.removal_run import RemovalRun


def find(found: FoundRows) -> DataFrame:
    return found.in_places(BRONZE)


def remove(run: RemovalRun) -> Removed:
    """Empties the erased events. They count as searched once this is recorded."""
    events, context = run.events, run.context
    counts = events.counts()
    files = sum(
        context.bronze(reader).empty(events.of_reader(reader.writer), events.spans(reader.writer))
        for reader in context.readers
        if counts.get(reader.writer)
    )
    return Removed({"events": sum(counts.values()), "files": files}, then=events.mark_searched)


def folders(spark: SparkSession, pipeline: Pipeline, _: Sequence[str]) -> Iterable[str]:
    return [*(reader.path for reader in source_readers(spark, pipeline)), pipeline.layout.subject_index]
