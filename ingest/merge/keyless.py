"""Merges tables without a key: multisets of rows, where an event adds an image or removes an equal one.

A create or a read adds a row (a credit), a delete removes an equal one (a debt), an update does both. A debt may
arrive before its credit and waits for it. The number of rows of a content is credits less debts, which does not depend
on order. Only duplicates have to be removed first (`without_duplicate_deliveries`), since the transport may deliver a
run of events again.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ingest.changelog.change import EVENT_ID, POSITION_COLUMN
from ingest.changelog.position import has_source_position, source_position

CONTENT = "_ingest_content"
SIDE = "_ingest_side"
CREDIT, DEBT = "credit", "debt"
CANCELLED = "_ingest_cancelled"


def without_duplicate_deliveries(events: DataFrame, counted: str | None = None) -> DataFrame:
    """Returns the `EVENT` rows of one table without duplicate deliveries.

    Events that share a position (of a snapshot, of a COPY) follow each other in their partition. If the same position
    and content occur again after another position, that is a second delivery of the same run. `counted`: name of a
    boolean column, true for events that are merged already; of equal events these are kept.
    """
    partition = Window.partitionBy("topic", "partition").orderBy("offset")
    source_place = source_position(F.col("position"))
    begins = F.coalesce(source_place != F.lag(source_place).over(partition), F.lit(True))
    runs = events.withColumns(
        {"_place": source_place, "_event_hash": _event_hash(), "_run": F.sum(begins.cast("long")).over(partition)}
    )
    same = ["topic", "partition", "_place", "_event_hash"]
    numbered = runs.withColumn("_nth", F.row_number().over(Window.partitionBy(*same, "_run").orderBy("offset")))
    before = [] if counted is None else [F.col(counted).desc()]
    first = F.row_number().over(Window.partitionBy(*same, "_nth").orderBy(*before, "offset"))
    # Without a source position a duplicate can't be told from another event.
    is_placed = has_source_position(F.col("position"))
    deduplicated = numbered.withColumn("_first", first).where((F.col("_first") == 1) | ~is_placed)
    return deduplicated.select(*events.columns)


def _event_hash() -> Column:
    """Returns a hash of op and both images. The rest of an envelope (such as `ts_ms`) may differ between deliveries."""
    text = F.col("value").cast("string")
    images = [
        F.when(F.col("wrapped"), F.get_json_object(text, f"$.payload.{name}")).otherwise(
            F.get_json_object(text, f"$.{name}")
        )
        for name in ("before", "after")
    ]
    return F.sha2(F.to_json(F.struct("op", *(i.alias(f"_{n}") for n, i in enumerate(images)))), 256)


def with_cancelled(entries: DataFrame) -> DataFrame:
    """Returns `entries` with `_ingest_cancelled`: the oldest credits and debts of a content cancel each other, one for
    one.

    `entries`: all credits (rows) and debts (removals) of some contents, with `_ingest_side`, `_ingest_content`,
    `_position` and `_ingest_event`.
    """
    side = Window.partitionBy(CONTENT, SIDE).orderBy(POSITION_COLUMN, F.col(EVENT_ID))
    both = Window.partitionBy(CONTENT)
    rows = F.sum((F.col(SIDE) == CREDIT).cast("long")).over(both)
    debts = F.sum((F.col(SIDE) == DEBT).cast("long")).over(both)
    numbered = entries.withColumns(
        {"_ingest_number": F.row_number().over(side), "_ingest_settled": F.least(rows, debts)}
    )
    return numbered.withColumn(CANCELLED, F.col("_ingest_number") <= F.col("_ingest_settled")).drop(
        "_ingest_number", "_ingest_settled"
    )
