"""Reads a pipeline's archive as a temporary bronze table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from ingest.backfill.source_readers import SourceReader
from ingest.config import Pipeline
from ingest.errors import ConfigError
from ingest.jvm.folders import deleted_afterwards
from ingest.lakehouse.bronze import Bronze
from ingest.loop.capture import Capture
from ingest.names import Lakehouse
from ingest.pipeline.composition import archive_import_of, decoding_of, landing_of, layout_of, rules_of
from ingest.pipeline.shredding import sealing_of
from ingest.sources.archive import ArchiveSource


@contextmanager
def archive_as_bronze(spark: SparkSession, pipeline: Pipeline, into: Lakehouse) -> Iterator[tuple[SourceReader, int]]:
    """Captures the whole archive into a temporary bronze in `into`, which is deleted on exit. Yields its reader and its
    last batch.

    Raises ConfigError if there is no archive or it is empty.
    """
    rules = rules_of(pipeline)
    source = ArchiveSource(layout_of(spark, pipeline))
    source.pin_end()
    path = into.bronze(pipeline.name)
    with deleted_afterwards(spark, path):
        bronze = Bronze(spark, path, rules.epochs, rules.names, rules.tuning)
        seal, archive_import = sealing_of(pipeline), archive_import_of(spark, pipeline, bronze, rules)
        limit = pipeline.batch.max_events
        decoding = decoding_of(spark, pipeline)
        capture = Capture(
            spark,
            source,
            bronze,
            rules.naming,
            limit,
            seal=seal,
            archive_import=archive_import,
            decoding=decoding,
            landing=landing_of(spark, pipeline, rules),
        )
        while capture.step():
            pass
        if not capture.captured.batch:
            raise ConfigError(
                f"the archive of pipeline {pipeline.name} is empty", f"fill it: ingest archive run {pipeline.name}"
            )
        yield SourceReader(pipeline.name, path, rules.columns), capture.captured.batch
