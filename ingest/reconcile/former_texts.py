"""Leaves out late events of rows that were deleted while their key was a text, which is of another type by now.

Several texts may be one value, such as `07` and `7`. A tombstone is the hash of the text that its delete carried, which
the value doesn't tell; the late event carries it too."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.batches.decoding import BatchChanges
from ingest.changelog.change import EVENT_ID, POSITION_COLUMN
from ingest.changelog.image_reader import ImageChoice
from ingest.lakehouse.tombstones import Tombstones
from ingest.merge.actions import TOMBSTONE_KEY, tombstone_key
from ingest.spark.checkpoints import checkpoint

_DELETED_AT = "_ingest_deleted_at"


def without_deleted_texts(changes: BatchChanges, tombstones: Tombstones) -> BatchChanges:
    """Returns the changes without those of events at or below the tombstone of the text that is their key."""
    texts = changes.by_former_texts() if tombstones.exists() else []
    if not texts:
        return changes
    deleted = checkpoint(reduce(DataFrame.unionByName, (_deleted(one, tombstones) for one in texts)))
    return changes if deleted.isEmpty() else changes.without(deleted)


def _deleted(changes: BatchChanges, tombstones: Tombstones) -> DataFrame:
    """Returns topic, partition and offset of the events, of each change of which there is a tombstone at or above it.
    `changes`: of keys as texts."""
    table_schema = changes.table_schema
    hashed = tombstone_key(table_schema.key, table_schema.key_types).alias(TOMBSTONE_KEY)
    carried = checkpoint(changes(ImageChoice.AFTER).select(hashed, POSITION_COLUMN, EVENT_ID))
    known = tombstones.matching(carried.select(TOMBSTONE_KEY).distinct())
    known = known.select(TOMBSTONE_KEY, F.col(POSITION_COLUMN).alias(_DELETED_AT))
    is_deleted = F.coalesce(F.col(POSITION_COLUMN) <= F.col(_DELETED_AT), F.lit(False))
    events = carried.join(known, TOMBSTONE_KEY, "left").groupBy(EVENT_ID).agg(F.bool_and(is_deleted).alias("deleted"))
    return events.where("deleted").select(f"{EVENT_ID}.*")
