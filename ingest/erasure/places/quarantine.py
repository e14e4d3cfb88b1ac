"""Quarantine: events that could not be applied, whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.config import Pipeline
from ingest.erasure.places import BRONZE, QUARANTINE
from ingest.erasure.places.place import ITEM, PLACE, REQUEST, FoundRows, Removed
from ingest.erasure.removal_run import RemovalRun
from ingest.lakehouse.bronze import COORDINATES


def find(found: FoundRows) -> DataFrame:
    """Returns the found events of bronze that are in quarantine too."""
    quarantined = found.context.quarantine.rows().select(F.to_json(F.struct(*COORDINATES)).alias(ITEM)).distinct()
    events = found.in_places(BRONZE).select(ITEM, REQUEST)
    return quarantined.join(F.broadcast(events), ITEM).select(F.lit(QUARANTINE).alias(PLACE), ITEM, REQUEST)


def remove(run: RemovalRun) -> Removed:
    coordinates = run.events.coordinates
    return Removed({"files": 0 if coordinates.isEmpty() else run.context.quarantine.remove(coordinates)})


def folders(_: SparkSession, pipeline: Pipeline, __: Sequence[str]) -> Iterable[str]:
    return [pipeline.layout.quarantine]
