"""Reconciles a table without a key: equal rows are counted. An image after is a credit, an image before a debt; each
debt cancels one credit of the same content. Silver holds the credits that are left, `pending` the debts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.batches.decoding import BatchChanges
from ingest.changelog.change import CODE, COLUMN_POSITIONS, EVENT_ID, POSITION_COLUMN, SOURCE_TS, quoted
from ingest.changelog.image_reader import ImageChoice
from ingest.internal_columns import LOCATION, LOCATION_TYPE
from ingest.lakehouse.row_changes import RowChanges
from ingest.merge.actions import ACTION, DELETE, INSERT
from ingest.merge.keyless import (
    CANCELLED,
    CONTENT,
    CREDIT,
    DEBT,
    SIDE,
    Era,
    content,
    eras,
    with_cancelled,
)
from ingest.merge.table_schema import TableSchema
from ingest.reconcile.changeset import Changeset, TableState, Truncation, above_truncate
from ingest.spark.checkpoints import checkpoint


def reconcile_keyless(
    changes: BatchChanges, table_schema: TableSchema, stored: TableState, truncation: Truncation
) -> Changeset:
    """Returns the rows to add to and remove from silver, and the debts to add to and remove from `pending`. Every event
    of the batch counts once."""
    known = eras(table_schema.names, changes.lives.untold_below)
    entries = checkpoint(keyless_entries(changes, table_schema, truncation, known))
    refused = entries.where(F.col(CODE).isNotNull()).dropDuplicates([EVENT_ID])
    good = entries.join(F.broadcast(refused.select(EVENT_ID)), EVENT_ID, "left_anti")
    good = good.select(*map(quoted, entry_columns(table_schema)))
    counted = good.agg(F.max(F.col(SIDE) == DEBT).alias("debts"), F.count_distinct(EVENT_ID).alias("applied")).first()
    assert counted is not None
    net = with_cancelled(_with_stored(good, table_schema, stored, bool(counted.debts), known), known)
    is_stored, cancelled = F.col(EVENT_ID).isNull(), F.col(CANCELLED)
    net = net.withColumn(ACTION, F.when(is_stored & cancelled, DELETE).when(~is_stored & ~cancelled, INSERT))
    net = checkpoint(net.where(F.col(ACTION).isNotNull()))
    file = F.col(LOCATION)["file"].alias("file")
    counts = net.groupBy(SIDE, ACTION, file).agg(F.count(F.lit(1)).alias("rows")).collect()  # a row per side and file
    by_side = {side: [row for row in counts if row[SIDE] == side] for side in (CREDIT, DEBT)}
    silver, pending = (
        RowChanges(
            net.where(F.col(SIDE) == side),
            frozenset(row[ACTION] for row in found),
            frozenset(row["file"] for row in found if row["file"] is not None),
            sum(row["rows"] for row in found),
        )
        if found
        else None
        for side, found in by_side.items()
    )
    quarantined = refused.count()
    return Changeset(silver, pending, None, refused if quarantined else None, counted.applied, quarantined)


def entry_columns(table_schema: TableSchema) -> list[str]:
    """Returns the columns of credits and debts."""
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


def keyless_entries(
    changes: BatchChanges, table_schema: TableSchema, truncation: Truncation, known: Sequence[Era]
) -> DataFrame:
    """Returns the batch's credits and debts, by `SIDE`, with their `CONTENT`."""
    images = {CREDIT: changes(ImageChoice.AFTER), DEBT: changes(ImageChoice.BEFORE)}
    frames = (
        above_truncate(frame, truncation.position).withColumn(SIDE, F.lit(side)) for side, frame in images.items()
    )
    entries = reduce(DataFrame.unionByName, frames)
    return entries.withColumns({LOCATION: F.lit(None).cast(LOCATION_TYPE), CONTENT: content(table_schema.names, known)})


def _with_stored(
    good: DataFrame, table_schema: TableSchema, stored: TableState, has_debts: bool, known: Sequence[Era]
) -> DataFrame:
    """Returns the entries, the stored debts of the same contents and, if the batch brings debts, the stored rows;
    stored ones have no `EVENT_ID`. Also those that the entries of an era match in its known columns."""
    entries = [good]
    contents = F.broadcast(good.select(CONTENT).distinct())
    no_event = F.lit(None).cast(good.schema[EVENT_ID].dataType)
    for side, rows in ((CREDIT, _rows(stored) if has_debts else None), (DEBT, waiting_rows(stored))):
        if rows is None:
            continue
        with_content = rows.withColumns(
            {CONTENT: content(table_schema.names, known), SIDE: F.lit(side), EVENT_ID: no_event}
        ).select(*map(quoted, entry_columns(table_schema)))
        matching = [with_content.join(contents, CONTENT, "left_semi")]
        for era in known:
            stored_part, others = (era.holds_credit, era.may_have_debt)[:: 1 if side == CREDIT else -1]
            group = era.content.alias("_ingest_group")
            wanted = good.where(others).select(group).distinct()
            of_era = with_content.where(stored_part).withColumn("_ingest_group", era.content)
            matching.append(of_era.join(F.broadcast(wanted), "_ingest_group", "left_semi").drop("_ingest_group"))
        same = reduce(DataFrame.unionByName, matching)
        entries.append(same if len(matching) == 1 else same.dropDuplicates([LOCATION]))
    return reduce(DataFrame.unionByName, entries)


def _rows(stored: TableState) -> DataFrame | None:
    return stored.silver.located() if stored.silver.exists() else None


def waiting_rows(stored: TableState) -> DataFrame | None:
    """Returns the pending rows of a keyless table, with their `LOCATION`; None if there are none."""
    if stored.pending_commit is not None:
        return stored.pending.located_before(stored.pending_commit)
    return stored.pending.located() if stored.pending.exists() else None
