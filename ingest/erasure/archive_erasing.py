"""Erasure in a pipeline's archive, written by ingest or by a sink connector."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.archive import ArchiveErasure, erase_records
from ingest.archive.connect import ConnectorArchive
from ingest.config import Pipeline
from ingest.errors import ConfigError
from ingest.lakehouse.bronze import COORDINATES, Bronze
from ingest.pipeline.composition import archive_of, layout_of
from ingest.spark.local_rows import local_rows

_RANGES = T.StructType(
    [
        T.StructField("topic", T.StringType()),
        T.StructField("partition", T.IntegerType()),
        T.StructField("first", T.LongType()),
        T.StructField("last", T.LongType()),
        T.StructField("records", T.LongType()),
    ]
)


def erase_from_archive(spark: SparkSession, pipeline: Pipeline, coordinates: DataFrame) -> ArchiveErasure | None:
    """Empties the archived records with these `coordinates` (`topic`, `partition`, `offset`, `request`). Returns None
    if the pipeline has no archive of its own. Call it after bronze has been emptied, because bronze is what later runs
    archive.

    Raises ConfigError if objects of a sink connector may hold such records."""
    if pipeline.archive is None:
        return None
    archive = layout_of(spark, pipeline)
    if isinstance(archive, ConnectorArchive):
        archive.refuse_to_erase(coordinates)
        return None
    return erase_records(spark, archive_of(pipeline), pipeline.name, coordinates)


def require_archive_read(spark: SparkSession, pipeline: Pipeline, bronzes: Sequence[Bronze]) -> None:
    """Raises ConfigError if the archive holds records that are in none of `bronzes`: their subjects are unknown."""
    archive = layout_of(spark, pipeline)
    # A connector's objects tell their first offset, but not their number of records.
    has_counts = not isinstance(archive, ConnectorArchive)
    ranges_by_partition: dict[tuple[str, int], tuple[int, int, int]] = {}
    for archived in archive.objects():
        previous = ranges_by_partition.get(
            (archived.topic, archived.partition), (archived.first_offset, archived.last_offset, 0)
        )
        bounds = min(previous[0], archived.first_offset), max(previous[1], archived.last_offset)
        ranges_by_partition[archived.topic, archived.partition] = (*bounds, previous[2] + archived.records)
    rows = [
        dict(zip(_RANGES.names, (*partition, *bounds), strict=True))
        for partition, bounds in ranges_by_partition.items()
    ]
    ranges = F.broadcast(local_rows(spark, rows, _RANGES))
    coordinates = [bronze.rows().select(*COORDINATES) for bronze in bronzes]
    read = coordinates[0] if len(coordinates) == 1 else reduce(DataFrame.unionByName, coordinates).distinct()
    within = F.col("offset").between(F.col("first"), F.col("last"))
    joined = ranges.join(read, ["topic", "partition"], "left").groupBy(*_RANGES.names)
    read_counts = joined.agg(F.min(F.when(within, F.col("offset"))).alias("begin"), F.count_if(within).alias("read"))
    is_missing = F.col("begin").isNull() | (F.col("begin") > F.col("first"))
    incomplete = read_counts.where(is_missing | (F.col("read") < F.col("records")) if has_counts else is_missing)
    row = incomplete.orderBy("topic", "partition").first()
    if row is not None:
        raise ConfigError(
            f"the archive of {pipeline.name} holds records of topic {row['topic']}, partition {row['partition']}, "
            "that no table has read: their subjects are unknown, so data to be erased may be among them",
            f"read them: ingest backfill {pipeline.name} --source archive. Then run the same command again",
        )
