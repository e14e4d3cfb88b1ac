"""Tombstones of erased deletes: a hash of the deleted key and a position."""

from __future__ import annotations

from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.changelog.change import POSITION_COLUMN
from ingest.erasure.places import TOMBSTONES
from ingest.erasure.places.place import ITEM, PLACE, REQUEST, FoundRows, Removed
from ingest.erasure.removal_run import RemovalRun
from ingest.lakehouse.catalog import CatalogEntry
from ingest.loop.suppression.event_references import TOMBSTONE_KEYS
from ingest.loop.suppression.late_children import event_columns
from ingest.merge.actions import TOMBSTONE_KEY
from ingest.suppression.before_cutoff import BEFORE_CUTOFF, with_cutoff_flags


def find(found: FoundRows) -> DataFrame | None:
    """Returns tombstones of keys that still occur in a row of history. Others can't be linked to a subject by what is
    stored."""
    tombstones = found.context.table_state(found.table).tombstones
    if not tombstones.exists():
        return None
    keys = found.rows.where(F.col(TOMBSTONE_KEY).isNotNull()).select(REQUEST, TOMBSTONE_KEY).distinct()
    matches = tombstones.rows().select(TOMBSTONE_KEY).join(F.broadcast(keys), TOMBSTONE_KEY)
    return matches.select(F.lit(TOMBSTONES).alias(PLACE), F.hex(TOMBSTONE_KEY).alias(ITEM), REQUEST)


def remove(run: RemovalRun) -> Removed:
    """Removes the tombstones of erased deletes. Tombstones after the cutoff stay."""
    return Removed({"files": run.for_each_table(partial(_remove_of_table, run, run.events.found))})


def _remove_of_table(run: RemovalRun, erased: DataFrame, entry: CatalogEntry) -> int:
    """Returns the number of rewritten files."""
    table = entry.table_schema.table
    tombstones = run.context.table_state(table).tombstones
    if not tombstones.exists():
        return 0
    of_table = erased.where(F.col("table") == table)
    keys = of_table.select("request", F.explode(TOMBSTONE_KEYS).alias(TOMBSTONE_KEY)).distinct()
    rows = tombstones.rows().select("*", *event_columns(entry)).join(F.broadcast(keys), TOMBSTONE_KEY)
    before_cutoff = with_cutoff_flags(rows, run.cutoffs, table).where(BEFORE_CUTOFF)
    return tombstones.remove(before_cutoff.select(TOMBSTONE_KEY, POSITION_COLUMN).distinct())
