"""Restores a lakehouse from its archive: captures bronze from there, and merges it as usual."""

from __future__ import annotations

import threading
from collections.abc import Callable

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ingest.config import Pipeline
from ingest.errors import ConfigError
from ingest.lakehouse.bronze import Bronze
from ingest.pipeline.composition import Progress, Run, bronze_of, layout_of
from ingest.sources.archive import ArchiveSource


def restore(
    spark: SparkSession, pipeline: Pipeline, stop: threading.Event, report: Callable[[Progress], None] = lambda _: None
) -> None:
    """Restores until the whole archive is merged, or until `stop`. A repeated call continues an interrupted restore; a
    later capture from Kafka continues where the archive ends.

    Raises ConfigError if bronze begins after the beginning of the archive.
    """
    source = ArchiveSource(layout_of(spark, pipeline))
    _require_from_the_beginning(bronze_of(spark, pipeline), source, pipeline.name)
    with Run(spark, pipeline, source=source, imports_files=True) as engine:
        engine.available_now(stop, report)


def _require_from_the_beginning(bronze: Bronze, source: ArchiveSource, name: str) -> None:
    """Raises ConfigError if the archive holds events before bronze's first: capture continues after the highest offset,
    so they would be skipped."""
    span = source.pending({}, 1 << 62)
    firsts = bronze.rows().groupBy("topic", "partition").agg(F.min("offset").alias("first")).collect()
    for row in firsts:  # a row per topic partition
        begin = None if span is None else span.start.get(row["topic"], {}).get(row["partition"])
        if begin is not None and begin < row["first"]:
            raise ConfigError(
                f"bronze of {name} begins at offset {row['first']} of topic {row['topic']}, partition "
                f"{row['partition']}, and the archive at {begin}: bronze was not lost, so it can't be restored",
                f"merge the older events with: ingest backfill {name} --source archive",
            )
