"""Null tombstones of a slice, each with the table and position of the change before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.changelog.tombstone_placement import placed, predecessors, searched_in


@dataclass(frozen=True)
class Placed:
    """`events`: the tombstones that say something new, `EVENT` rows. `counts`: table → (all, those that only
    repeat the delete right before them); table None where a tombstone is nobody's."""

    events: DataFrame | None
    counts: Mapping[str | None, tuple[int, int]]


def place(events: DataFrame, history: DataFrame, topics: Mapping[str, str]) -> Placed:
    """`history`: bronze before the slice. `topics`: topic → its one table, for a tombstone without history."""
    found = predecessors(events).localCheckpoint()
    orphaned = found.where(F.col("_before").isNull())
    if not orphaned.isEmpty():
        known = found.where(F.col("_before").isNotNull())
        found = known.unionByName(searched_in(history, orphaned))
    named = F.lit(None).cast("string")
    if topics:
        pairs = [F.lit(text) for pair in topics.items() for text in pair]
        named = F.element_at(F.create_map(*pairs), F.col("topic"))
    repeats = F.coalesce(F.col("_before.op") == "d", F.lit(False))
    settled = placed(found.withColumn("_repeats", repeats), named).localCheckpoint(eager=False)
    counts = {
        r[0]: (r[1], r[2])
        for r in settled.groupBy("source_table")
        .agg(F.count(F.lit(1)), F.count_if("_repeats"))
        .collect()  # a row per table
    }
    telling = sum(total - repeated for table, (total, repeated) in counts.items() if table is not None)
    return Placed(settled.where(~F.col("_repeats")).drop("_repeats") if telling else None, counts)
