"""The register of places that hold rows of subjects, in the order of removal.

Search, removal, old files, vacuum and certificate go through it: a new place is one entry. A scan doesn't use it,
because it shares no code with what erases; tests hold that it covers every entry (`tests/erasure/test_places.py`)."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from ingest.config import Pipeline
from ingest.erasure.event_search import EventReferences
from ingest.erasure.places import (
    ARCHIVE,
    BRONZE,
    DATA_KEYS,
    OLD_FILES,
    QUARANTINE,
    TABLES,
    TOMBSTONES,
    TOPICS,
    archive,
    bronze,
    data_keys,
    old_files,
    quarantine,
    tables,
    tombstones,
    topics,
)
from ingest.erasure.places.place import ErasurePlace, per_table
from ingest.names import Lakehouse

REGISTER: Sequence[ErasurePlace] = (
    ErasurePlace(
        DATA_KEYS,
        find=None,
        remove=data_keys.remove,
        folders=None,
        outside=None,
        is_used=lambda pipeline: pipeline.shreds,
    ),
    ErasurePlace(
        TOMBSTONES,
        find=tombstones.find,
        remove=tombstones.remove,
        folders=per_table(Lakehouse.tombstones),
        outside=None,
    ),
    ErasurePlace(
        QUARANTINE,
        find=quarantine.find,
        remove=quarantine.remove,
        folders=quarantine.folders,
        outside=None,
    ),
    ErasurePlace(
        TABLES,
        find=tables.find,
        remove=tables.remove,
        folders=per_table(Lakehouse.silver, Lakehouse.pending, Lakehouse.history, Lakehouse.changes),
        outside=None,
        references=tables.RowReferences,
    ),
    # After the places before it, which are found by its events.
    ErasurePlace(
        BRONZE,
        find=bronze.find,
        remove=bronze.remove,
        folders=bronze.folders,
        outside=None,
        references=EventReferences,
    ),
    # After all Delta tables.
    ErasurePlace(OLD_FILES, find=None, remove=old_files.remove, folders=None, outside=None),
    # Places of other systems come last.
    ErasurePlace(
        TOPICS,
        find=None,
        remove=topics.remove,
        folders=None,
        outside=topics.outside,
        is_used=lambda pipeline: pipeline.writes_tombstones,
    ),
    ErasurePlace(
        ARCHIVE,
        find=None,
        remove=archive.remove,
        folders=None,
        outside=archive.outside,
        is_used=lambda pipeline: pipeline.archive is not None,
    ),
)


def used_places(pipeline: Pipeline) -> list[ErasurePlace]:
    """Returns the places that a pipeline has, in the order of removal."""
    return [place for place in REGISTER if place.is_used(pipeline)]


def delta_places() -> frozenset[str]:
    """Returns the names of the places whose removal leaves old files."""
    return frozenset(place.name for place in REGISTER if place.folders is not None)


def delta_folders(spark: SparkSession, pipeline: Pipeline, source_tables: Sequence[str]) -> list[str]:
    """Returns the Delta tables of all places that hold rows of these source tables, whether they exist or not."""
    parts = [place.folders for place in used_places(pipeline) if place.folders is not None]
    return [folder for folders in parts for folder in folders(spark, pipeline, source_tables)]
