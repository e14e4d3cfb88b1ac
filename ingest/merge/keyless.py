"""Merges tables without a key: multisets of rows, where an event adds an image or removes an equal one.

A create or a read adds a row (a credit), a delete removes an equal one (a debt), an update does both. A debt may
arrive before its credit and waits for it. The number of rows of a content is credits less debts, which does not depend
on order. Only duplicates have to be removed first (`without_duplicate_deliveries`), since the transport may deliver a
run of events again.

A row from before a column whose value there only the source knows equals an image in the other columns (`Era`), if no
row below the image equals it in all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ingest.changelog.change import EVENT_ID, POSITION_COLUMN, content_hash
from ingest.changelog.position import has_source_position, position_literal, source_position

CONTENT = "_ingest_content"
SIDE = "_ingest_side"
CREDIT, DEBT = "credit", "debt"
CANCELLED = "_ingest_cancelled"


def without_duplicate_deliveries(events: DataFrame, counted: str | None = None) -> DataFrame:
    """Returns the `EVENT` rows of one table without duplicate deliveries.

    Events that share a position (of a snapshot, of a COPY) follow each other in their partition. If the same position
    and content occur again after another position, that is a second delivery of the same run. A run is whole if a
    higher position follows it; runs behind the first whole one add nothing, since a connector that starts again right
    after another start repeats a run's events without any between. `counted`: name of a boolean column, true for events
    that are merged already; of equal events these are kept.
    """
    partition = Window.partitionBy("topic", "partition").orderBy("offset")
    source_place = source_position(F.col("position"))
    begins = F.coalesce(source_place != F.lag(source_place).over(partition), F.lit(True))
    runs = events.withColumns(
        {"_place": source_place, "_event_hash": _event_hash(), "_run": F.sum(begins.cast("long")).over(partition)}
    )
    is_whole = F.lead(source_place).over(partition) > source_place
    runs = runs.withColumn("_whole", F.when(is_whole, F.col("_run")))
    same = ["topic", "partition", "_place", "_event_hash"]
    first_whole = F.min("_whole").over(Window.partitionBy(*same))
    runs = runs.withColumn("_is_later", F.coalesce(F.col("_run") > first_whole, F.lit(False)))
    numbered = runs.withColumn("_nth", F.row_number().over(Window.partitionBy(*same, "_run").orderBy("offset")))
    before = [] if counted is None else [F.col(counted).desc()]
    first = F.row_number().over(Window.partitionBy(*same, "_nth").orderBy(*before, "offset"))
    # Without a source position a duplicate can't be told from another event.
    is_placed = has_source_position(F.col("position"))
    is_first = (F.col("_first") == 1) & ~F.col("_is_later")
    deduplicated = numbered.withColumn("_first", first).where(is_first | ~is_placed)
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


@dataclass(frozen=True)
class Era:
    """Rows at positions from `begin` on, below `end`; None for no bound. `known`: the columns whose values in them are
    known."""

    known: tuple[str, ...]
    begin: tuple[int, ...] | None
    end: tuple[int, ...]

    @property
    def content(self) -> Column:
        """The hash of the known columns."""
        return content_hash(self.known) if self.known else F.lit(bytearray())

    @property
    def holds_credit(self) -> Column:
        """True for a row of the era."""
        at = F.col(POSITION_COLUMN)
        is_within = at < position_literal(self.end)
        if self.begin is not None:
            is_within &= at >= position_literal(self.begin)
        return (F.col(SIDE) == CREDIT) & is_within

    @property
    def may_have_debt(self) -> Column:
        """True for a removal that may be that of a row of the era."""
        at = F.col(POSITION_COLUMN)
        return (F.col(SIDE) == DEBT) & (at >= position_literal(self.end)) & has_source_position(at)


def eras(columns: Sequence[str], untold_below: Mapping[str, tuple[int, ...]]) -> tuple[Era, ...]:
    """Returns the eras of rows with unknown values, the newest first. `untold_below`: `Lives.untold_below`."""
    ends = sorted({*untold_below.values()})
    found = []
    for begin, end in zip([None, *ends], ends, strict=False):
        known = tuple(name for name in columns if untold_below.get(name, ()) < end)
        found.append(Era(known, begin, end))
    return tuple(found[::-1])


def content(columns: Sequence[str], known: Sequence[Era]) -> Column:
    """Returns the hash by which entries are equal: of all `columns`, within an era of those that are known. `known`:
    `eras`."""
    found: Column | None = None
    for number, era in enumerate(known[::-1]):
        # A value that is not known is another one than null.
        of_era = F.concat(era.content, F.lit(bytearray([number])))
        is_within = F.col(POSITION_COLUMN) < position_literal(era.end)
        found = F.when(is_within, of_era) if found is None else found.when(is_within, of_era)
    whole = content_hash(columns)
    return whole if found is None else found.otherwise(whole)


def with_cancelled(entries: DataFrame, likely: Sequence[Era] = ()) -> DataFrame:
    """Returns `entries` with `_ingest_cancelled`: the oldest credits and debts of a content cancel each other, one for
    one.

    `entries`: all credits (rows) and debts (removals) of some contents, with `_ingest_side`, `_ingest_content`,
    `_position` and `_ingest_event`. `likely`: eras of rows that a debt cancels if no equal credit is below it; then
    `entries` hold those too."""
    none = entries.withColumn(CANCELLED, F.lit(False))
    found = reduce(_likely_cancelled, likely, _cancelled_below(entries)) if likely else none
    return _paired(found, ~F.col(CANCELLED), F.col(CONTENT))


def _cancelled_below(entries: DataFrame) -> DataFrame:
    """Returns `entries` with `_ingest_cancelled`: a debt cancels the oldest equal credit that is below it and that none
    has cancelled before."""
    in_order = Window.partitionBy(CONTENT).orderBy(POSITION_COLUMN, F.col(SIDE) == CREDIT, F.col(EVENT_ID))
    through, before = (in_order.rowsBetween(Window.unboundedPreceding, end) for end in (0, -1))
    is_credit = F.col(SIDE) == CREDIT
    left = F.sum(F.when(is_credit, 1).otherwise(-1)).over(through)
    found = entries.withColumn("_ingest_left", left)
    # A debt without a credit takes the number below all before it.
    lowest = F.least(F.lit(0), F.coalesce(F.min("_ingest_left").over(before), F.lit(0)))
    found = found.withColumn("_ingest_settles", ~is_credit & (F.col("_ingest_left") >= lowest))
    settled = F.sum(F.col("_ingest_settles").cast("long")).over(Window.partitionBy(CONTENT))
    number = F.row_number().over(Window.partitionBy(CONTENT, SIDE).orderBy(POSITION_COLUMN, F.col(EVENT_ID)))
    cancelled = F.when(is_credit, number <= settled).otherwise(F.col("_ingest_settles"))
    return found.withColumn(CANCELLED, cancelled).drop("_ingest_left", "_ingest_settles")


def _likely_cancelled(entries: DataFrame, era: Era) -> DataFrame:
    """Returns the entries, where debts that are left also cancel the oldest rows of an era that are left."""
    is_left = ~F.col(CANCELLED)
    return _paired(entries, is_left & (era.holds_credit | era.may_have_debt), era.content)


def _paired(entries: DataFrame, are_paired: Column, by: Column) -> DataFrame:
    """Returns the entries, where the oldest credits and debts of those for which `are_paired` is true, and which are
    equal `by` a hash, cancel each other, one for one."""
    group = ["_ingest_is_paired", "_ingest_group"]
    marked = entries.withColumns(dict(zip(group, (are_paired, by), strict=True)))
    side = Window.partitionBy(*group, SIDE).orderBy(POSITION_COLUMN, F.col(EVENT_ID))
    both = Window.partitionBy(*group)
    counts = (F.sum((F.col(SIDE) == one).cast("long")).over(both) for one in (CREDIT, DEBT))
    numbered = marked.withColumns({"_ingest_number": F.row_number().over(side), "_ingest_settled": F.least(*counts)})
    is_settled = F.col("_ingest_is_paired") & (F.col("_ingest_number") <= F.col("_ingest_settled"))
    cancelled = numbered.withColumn(CANCELLED, F.col(CANCELLED) | is_settled)
    return cancelled.drop(*group, "_ingest_number", "_ingest_settled")
