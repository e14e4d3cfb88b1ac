"""Null tombstones of a slice, each with the table and position of the change before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from ingest.batches.group_stats import Group
from ingest.changelog import unplaced_reads
from ingest.changelog.envelope import TOMBSTONE
from ingest.changelog.origin import ORIGIN, UNNAMED
from ingest.changelog.position import is_unplaced_read
from ingest.changelog.tombstone_placement import placed_tombstones, tombstones_with_predecessors, with_predecessors_from
from ingest.spark.checkpoints import checkpoint


@dataclass(frozen=True)
class Placed:
    """`events`: the tombstones that say something new, `EVENT` rows. `counts`: table → (all, those that only
    repeat the delete right before them); table None where a tombstone is nobody's. `told`: tables that have any
    in `events`. `origins`: table → servers and databases of the changes before its tombstones."""

    events: DataFrame | None
    counts: Mapping[str | None, tuple[int, int]]
    told: frozenset[str] = frozenset()
    origins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def repeating(groups: Sequence[Group]) -> Placed | None:
    """Of a slice whose null tombstones are known to repeat what stands right before them, each. None where one may say
    more."""
    counts: Counter[str | None] = Counter()
    for group in groups:
        if group.kind == TOMBSTONE:
            counts[group.table] += group.count
    return None if None in counts else Placed(None, {table: (count, count) for table, count in counts.items()})


def place(
    events: DataFrame,
    earlier: Iterator[DataFrame],
    topics: Mapping[str, str],
    chosen: Column | None = None,
    repeated: bool = False,
) -> Placed:
    """`earlier`: bronze before the slice, first the end of it, where a tombstone's change mostly is, last all of it.
    `topics`: topic → its one table, for a tombstone without history. `chosen`: which of them count, by where they stand
    then. `repeated`: those that only repeat a delete are wanted too."""
    named = F.lit(None).cast("string")
    if topics:
        pairs = [F.lit(text) for pair in topics.items() for text in pair]
        named = F.element_at(F.create_map(*pairs), F.col("topic"))
    found = checkpoint(tombstones_with_predecessors(events))
    settled, tables = _settled(found, named)
    lone = _is_lone()
    while any(table["orphans"] for table in tables) and (history := next(earlier, None)) is not None:
        found = checkpoint(found.where(~lone).unionByName(with_predecessors_from(history, found.where(lone))))
        settled, tables = _settled(found, named)
    if chosen is not None:
        settled = checkpoint(settled.where(chosen))
        tables = _counted(settled)
    counts = {table["source_table"]: (table["count"], table["repeated"]) for table in tables}
    origins = {table["source_table"]: tuple(sorted(table["origins"])) for table in tables}
    told = frozenset(t for t, (count, again) in counts.items() if t is not None and (repeated or count > again))
    if not told:
        return Placed(None, counts)
    # It says of no time but that at which it was written.
    when = F.coalesce("source_ts", "timestamp")
    new = settled if repeated else settled.where(~F.col("_repeats"))
    return Placed(new.drop("_repeats", "_lone").withColumn("source_ts", when), counts, told, origins)


def stand(events: DataFrame, earlier: Iterator[DataFrame]) -> DataFrame:
    """`EVENT` rows, with a position for each snapshot read that brings none. `earlier`: as of `place`."""
    found = checkpoint(unplaced_reads.with_predecessors(events))
    while (
        not found.where(unplaced_reads.lacks_predecessor()).isEmpty() and (history := next(earlier, None)) is not None
    ):
        found = checkpoint(unplaced_reads.with_predecessors_from(history, found))
    return checkpoint(unplaced_reads.placed_reads(found))


def _is_lone() -> Column:
    """Whether the placed change before a tombstone is not found yet."""
    return F.col("_before").isNull() | is_unplaced_read(F.col("_before.position"))


def _settled(found: DataFrame, named: Column) -> tuple[DataFrame, list[Row]]:
    """The tombstones where they stand, and a row of counts per table."""
    repeats = F.coalesce(F.col("_before.op") == "d", F.lit(False))
    told = found.withColumns({"_repeats": repeats, "_lone": _is_lone()})
    settled = checkpoint(placed_tombstones(told, named))
    return settled, _counted(settled)


def _counted(settled: DataFrame) -> list[Row]:
    counts = (
        F.count(F.lit(1)).alias("count"),
        F.count_if("_repeats").alias("repeated"),
        F.count_if("_lone").alias("orphans"),
        F.collect_set(F.when(F.col(ORIGIN) != UNNAMED, F.col(ORIGIN))).alias("origins"),
    )
    return settled.groupBy("source_table").agg(*counts).collect()  # a row per table
