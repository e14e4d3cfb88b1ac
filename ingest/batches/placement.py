"""Gives the null tombstones of a slice the table and position of the change before them."""

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
from ingest.changelog.record_keys import schema_of_key
from ingest.changelog.tombstone_placement import placed_tombstones, tombstones_with_predecessors, with_predecessors_from
from ingest.merge.key_changes import names_new_key
from ingest.spark.checkpoints import checkpoint


@dataclass(frozen=True)
class PlacedTombstones:
    """`events`: `EVENT` rows of the tombstones that bring something new. `counts`: table → (all, those that only repeat
    the delete right before them); table None for tombstones without a table. `tables`: those that have any in `events`.
    `origins`: table → servers and databases of the changes before its tombstones. `moving`: tables of which a tombstone
    in `events` names the key to which its row moves. `key_schemas`: table → the texts of the schemas that the keys of
    its tombstones are wrapped in."""

    events: DataFrame | None
    counts: Mapping[str | None, tuple[int, int]]
    tables: frozenset[str] = frozenset()
    origins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    moving: frozenset[str] = frozenset()
    key_schemas: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def repeated_deletes(groups: Sequence[Group]) -> PlacedTombstones | None:
    """Returns the tombstones of a slice if its statistics show that each repeats the delete right before it; else
    None."""
    counts: Counter[str | None] = Counter()
    for group in groups:
        if group.kind == TOMBSTONE:
            counts[group.table] += group.count
    return (
        None if None in counts else PlacedTombstones(None, {table: (count, count) for table, count in counts.items()})
    )


def place_tombstones(
    events: DataFrame,
    earlier: Iterator[DataFrame],
    topics: Mapping[str, str],
    chosen: Column | None = None,
    repeated: bool = False,
) -> PlacedTombstones:
    """Returns the placed tombstones of `events`. `earlier`: bronze before the slice, first its last batch, where most
    changes before a tombstone are, then all of it. `topics`: topic → its only table, for tombstones without an earlier
    change. `chosen`: selects the placed tombstones that count. `repeated`: keep those that only repeat a delete."""
    named = F.lit(None).cast("string")
    if topics:
        pairs = [F.lit(text) for pair in topics.items() for text in pair]
        named = F.element_at(F.create_map(*pairs), F.col("topic"))
    found = checkpoint(tombstones_with_predecessors(events))
    placed, counted = _placed(found, named)
    lone = _is_lone()
    while any(table["orphans"] for table in counted) and (history := next(earlier, None)) is not None:
        found = checkpoint(found.where(~lone).unionByName(with_predecessors_from(history, found.where(lone))))
        placed, counted = _placed(found, named)
    if chosen is not None:
        placed = checkpoint(placed.where(chosen))
        counted = _counted(placed)
    counts = {table["source_table"]: (table["count"], table["repeated"]) for table in counted}
    origins, schemas = (
        {table["source_table"]: tuple(sorted(table[name])) for table in counted} for name in ("origins", "schemas")
    )
    tables = frozenset(t for t, (count, repeats) in counts.items() if t is not None and (repeated or count > repeats))
    if not tables:
        return PlacedTombstones(None, counts)
    moving = frozenset(table["source_table"] for table in counted if table["moves"])
    # A null tombstone has no source time, only the time at which Kafka stored it.
    when = F.coalesce("source_ts", "timestamp")
    new = placed if repeated else placed.where(~F.col("_is_repeat"))
    new = new.drop("_is_repeat", "_is_orphan").withColumn("source_ts", when)
    return PlacedTombstones(new, counts, tables, origins, moving, schemas)


def position_snapshot_reads(events: DataFrame, earlier: Iterator[DataFrame]) -> DataFrame:
    """Returns the `EVENT` rows with a position for each snapshot read that has none. `earlier`: as of
    `place_tombstones`."""
    found = checkpoint(unplaced_reads.with_predecessors(events))
    while (
        not found.where(unplaced_reads.lacks_predecessor()).isEmpty() and (history := next(earlier, None)) is not None
    ):
        found = checkpoint(unplaced_reads.with_predecessors_from(history, found))
    return checkpoint(unplaced_reads.placed_reads(found))


def _is_lone() -> Column:
    """Returns whether the change before a tombstone has not been found yet."""
    return F.col("_before").isNull() | is_unplaced_read(F.col("_before.position"))


def _placed(found: DataFrame, named: Column) -> tuple[DataFrame, list[Row]]:
    """Returns the placed tombstones, and a row of counts per table."""
    repeats = F.coalesce(F.col("_before.op") == "d", F.lit(False))
    marked = found.withColumns({"_is_repeat": repeats, "_is_orphan": _is_lone()})
    placed = checkpoint(placed_tombstones(marked, named))
    return placed, _counted(placed)


def _counted(placed: DataFrame) -> list[Row]:
    counts = (
        F.count(F.lit(1)).alias("count"),
        F.count_if("_is_repeat").alias("repeated"),
        F.count_if("_is_orphan").alias("orphans"),
        F.bool_or(names_new_key()).alias("moves"),
        F.collect_set(F.when(F.col(ORIGIN) != UNNAMED, F.col(ORIGIN))).alias("origins"),
        F.collect_set(schema_of_key(F.col("key"))).alias("schemas"),
    )
    return placed.groupBy("source_table").agg(*counts).collect()  # a row per table
