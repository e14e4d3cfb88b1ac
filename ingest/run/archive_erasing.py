"""An erasure in a pipeline's archive, whoever writes it."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from ingest.archive import Erased, erased
from ingest.archive.connect import SunkByConnector
from ingest.config import Pipeline
from ingest.run.pipeline import archive_of, layout_of


def erased_from_archive(spark: SparkSession, pipeline: Pipeline, coordinates: DataFrame) -> Erased | None:
    """Empties the archived records of `coordinates` (`topic`, `partition`, `offset`, `request`); None where the
    pipeline has no archive. To be called once bronze holds them no more: what is archived later comes from there.

    Raises ConfigError where a sink connector's objects may hold such records."""
    if pipeline.archive is None:
        return None
    archive = layout_of(spark, pipeline)
    if isinstance(archive, SunkByConnector):
        archive.refuse_to_erase(coordinates)
        return None
    return erased(spark, archive_of(pipeline), pipeline.name, coordinates)
