"""No key: rows are counted by what they hold. What comes is held against what is there, and what was owed."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.batches.decoding import Changes
from ingest.changelog.change import CODE, COLUMN_POSITIONS, EVENT_ID, POSITION_COLUMN, SOURCE_TS, content, quoted
from ingest.changelog.image_reader import ImageChoice
from ingest.internal_columns import LOCATION, LOCATION_TYPE
from ingest.lakehouse.row_changes import RowChanges
from ingest.merge.actions import ACTION, DELETE, INSERT
from ingest.merge.images import TableSchema
from ingest.merge.keyless import CANCELLED, CONTENT, CREDIT, DEBT, SIDE, with_cancelled
from ingest.reconcile.changeset import Changeset, TableState, Truncation, above_truncate
from ingest.spark.checkpoints import checkpoint


def by_content(changes: Changes, table_schema: TableSchema, stored: TableState, truncated: Truncation) -> Changeset:
    """Every event of the batch counts once; silver gets what is left of credits, the pending table what is owed."""
    new = checkpoint(_entries(changes, table_schema, truncated))
    refused = new.where(F.col(CODE).isNotNull()).dropDuplicates([EVENT_ID])
    good = new.join(F.broadcast(refused.select(EVENT_ID)), EVENT_ID, "left_anti").select(
        *map(quoted, _columns(table_schema))
    )
    counted = good.agg(F.max(F.col(SIDE) == DEBT).alias("debts"), F.count_distinct(EVENT_ID).alias("applied")).first()
    assert counted is not None
    net = with_cancelled(_with_stored(good, table_schema, stored, bool(counted.debts)))
    known, cancelled = F.col(EVENT_ID).isNull(), F.col(CANCELLED)
    net = net.withColumn(ACTION, F.when(known & cancelled, DELETE).when(~known & ~cancelled, INSERT))
    net = checkpoint(net.where(F.col(ACTION).isNotNull()))
    file = F.col(LOCATION)["file"].alias("file")
    counts = net.groupBy(SIDE, ACTION, file).agg(F.count(F.lit(1)).alias("rows"))
    told = counts.collect()  # a row per file, side and action
    writes = {side: [w for w in told if w[SIDE] == side] for side in (CREDIT, DEBT)}
    silver, pending = (
        RowChanges(
            net.where(F.col(SIDE) == side),
            frozenset(w[ACTION] for w in found),
            frozenset(w["file"] for w in found if w["file"] is not None),
            sum(w["rows"] for w in found),
        )
        if found
        else None
        for side, found in writes.items()
    )
    quarantined = refused.count()
    return Changeset(silver, pending, None, refused if quarantined else None, counted.applied, quarantined)


def _columns(table_schema: TableSchema) -> list[str]:
    return [
        *(c.name for c in table_schema.columns),
        POSITION_COLUMN,
        SOURCE_TS,
        COLUMN_POSITIONS,
        EVENT_ID,
        SIDE,
        LOCATION,
        CONTENT,
    ]


def _entries(changes: Changes, table_schema: TableSchema, truncated: Truncation) -> DataFrame:
    """What the batch adds, and what it takes away."""
    sides = {CREDIT: changes(ImageChoice.AFTER), DEBT: changes(ImageChoice.BEFORE)}
    frames = (above_truncate(frame, truncated.position).withColumn(SIDE, F.lit(side)) for side, frame in sides.items())
    new = reduce(DataFrame.unionByName, frames)
    return new.withColumns({LOCATION: F.lit(None).cast(LOCATION_TYPE), CONTENT: content(table_schema.names)})


def _with_stored(good: DataFrame, table_schema: TableSchema, stored: TableState, debts: bool) -> DataFrame:
    """And of the same contents the rows that are there, if anything takes rows away, and what is owed."""
    entries = [good]
    wanted = F.broadcast(good.select(CONTENT).distinct())
    nobody = F.lit(None).cast(good.schema[EVENT_ID].dataType)
    for side, located in ((CREDIT, _rows(stored) if debts else None), (DEBT, _owed(stored))):
        if located is not None:
            there = located.withColumns({CONTENT: content(table_schema.names), SIDE: F.lit(side), EVENT_ID: nobody})
            entries.append(there.join(wanted, CONTENT, "left_semi").select(*map(quoted, _columns(table_schema))))
    return reduce(DataFrame.unionByName, entries)


def _rows(stored: TableState) -> DataFrame | None:
    return stored.silver.located() if stored.silver.exists() else None


def _owed(stored: TableState) -> DataFrame | None:
    if stored.owed_before is not None:
        return stored.pending.located_before(stored.owed_before)
    return stored.pending.located() if stored.pending.exists() else None
