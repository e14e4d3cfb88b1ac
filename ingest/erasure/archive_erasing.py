"""An erasure in a pipeline's archive, whoever writes it."""

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

_HELD = T.StructType(
    [
        T.StructField("topic", T.StringType()),
        T.StructField("partition", T.IntegerType()),
        T.StructField("first", T.LongType()),
        T.StructField("last", T.LongType()),
        T.StructField("records", T.LongType()),
    ]
)


def erased_from_archive(spark: SparkSession, pipeline: Pipeline, coordinates: DataFrame) -> ArchiveErasure | None:
    """Empties the archived records of `coordinates` (`topic`, `partition`, `offset`, `request`); None where the
    pipeline has no archive. To be called once bronze holds them no more: what is archived later comes from there.

    Raises ConfigError where a sink connector's objects may hold such records."""
    if pipeline.archive is None:
        return None
    archive = layout_of(spark, pipeline)
    if isinstance(archive, ConnectorArchive):
        archive.refuse_to_erase(coordinates)
        return None
    return erase_records(spark, archive_of(pipeline), pipeline.name, coordinates)


def require_read(spark: SparkSession, pipeline: Pipeline, bronzes: Sequence[Bronze]) -> None:
    """Raises ConfigError where the archive holds records that are in none of `bronzes`."""
    archive = layout_of(spark, pipeline)
    # A connector's objects tell where they begin, and not how many records they hold.
    counted = not isinstance(archive, ConnectorArchive)
    held: dict[tuple[str, int], tuple[int, int, int]] = {}
    for one in archive.objects():
        known = held.get((one.topic, one.partition), (one.first_offset, one.last_offset, 0))
        ends = min(known[0], one.first_offset), max(known[1], one.last_offset)
        held[one.topic, one.partition] = (*ends, known[2] + one.records)
    rows = [dict(zip(_HELD.names, (*partition, *told), strict=True)) for partition, told in held.items()]
    ranges = F.broadcast(local_rows(spark, rows, _HELD))
    every = [bronze.rows().select(*COORDINATES) for bronze in bronzes]
    read = every[0] if len(every) == 1 else reduce(DataFrame.unionByName, every).distinct()
    within = F.col("offset").between(F.col("first"), F.col("last"))
    there = ranges.join(read, ["topic", "partition"], "left").groupBy(*_HELD.names)
    told = there.agg(F.min(F.when(within, F.col("offset"))).alias("begin"), F.count_if(within).alias("read"))
    missing = F.col("begin").isNull() | (F.col("begin") > F.col("first"))
    lacking = told.where(missing | (F.col("read") < F.col("records")) if counted else missing)
    row = lacking.orderBy("topic", "partition").first()
    if row is not None:
        raise ConfigError(
            f"the archive of {pipeline.name} holds records of topic {row['topic']}, partition {row['partition']}, "
            "that no table has read: whose they are is not known, so what is to be erased may be among them",
            f"read them: ingest backfill {pipeline.name} --source archive. Then run the same again",
        )
