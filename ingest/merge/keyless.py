"""Tables without a key: a bag of rows, where an event adds an image or takes one away.

A create or a read adds one row, a delete takes one away that is the same, an update does both. What is taken away
before it came is owed, and what comes settles it. So every row and every debt is a count, counts are added up, and
their sum does not depend on the order; only that each event counts once has to be seen to: the transport may deliver
a run of events again.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ingest.changelog.change import EVENT_ID, POSITION_COLUMN
from ingest.changelog.position import is_placed, place

CONTENT = "_content"
SIDE = "_side"
CREDIT, DEBT = "credit", "debt"
CANCELLED = "_cancelled"


def delivered_once(events: DataFrame, counted: str | None = None) -> DataFrame:
    """`EVENT` rows of one table, without those that were delivered before. `counted`: a column that is true for events
    that count already, wherever they stand.

    Rows that share a position follow each other (a snapshot, a COPY); where the same position and value come again
    after another position, it is the same run once more.
    """
    partition = Window.partitionBy("topic", "partition").orderBy("offset")
    here = place(F.col("position"))
    begins = F.coalesce(here != F.lag(here).over(partition), F.lit(True))
    runs = events.withColumns({"_place": here, "_said": _said(), "_run": F.sum(begins.cast("long")).over(partition)})
    same = ["topic", "partition", "_place", "_said"]
    numbered = runs.withColumn("_nth", F.row_number().over(Window.partitionBy(*same, "_run").orderBy("offset")))
    before = [] if counted is None else [F.col(counted).desc()]
    first = F.row_number().over(Window.partitionBy(*same, "_nth").orderBy(*before, "offset"))
    # Without a position of the source there is nothing by which an event could be known again.
    placed = is_placed(F.col("position"))
    once = numbered.withColumn("_first", first).where((F.col("_first") == 1) | ~placed)
    return once.select(*events.columns)


def _said() -> Column:
    """The op and both images, without what a delivery adds (the time of processing)."""
    text = F.col("value").cast("string")
    images = [
        F.when(F.col("wrapped"), F.get_json_object(text, f"$.payload.{name}")).otherwise(
            F.get_json_object(text, f"$.{name}")
        )
        for name in ("before", "after")
    ]
    return F.sha2(F.to_json(F.struct("op", *(i.alias(f"_{n}") for n, i in enumerate(images)))), 256)


def netted(entries: DataFrame) -> DataFrame:
    """Credits (rows) and debts (`_side`, `_content`, `_position`) of some contents, with `_cancelled`: the oldest of
    each side cancel each other."""
    side = Window.partitionBy(CONTENT, SIDE).orderBy(POSITION_COLUMN, F.col(EVENT_ID))
    both = Window.partitionBy(CONTENT)
    rows = F.sum((F.col(SIDE) == CREDIT).cast("long")).over(both)
    debts = F.sum((F.col(SIDE) == DEBT).cast("long")).over(both)
    numbered = entries.withColumns({"_number": F.row_number().over(side), "_settled": F.least(rows, debts)})
    return numbered.withColumn(CANCELLED, F.col("_number") <= F.col("_settled")).drop("_number", "_settled")
