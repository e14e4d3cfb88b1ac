"""What a slice of bronze holds, before any of it is decoded: tables, schemas, counts. One Spark job, metadata only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest.changelog.envelope import CHANGES
from ingest.changelog.inference import shape
from ingest.changelog.key_change import names_new_key

Coordinates = tuple[str, int, int]
CHANGE = "change"


@dataclass(frozen=True)
class Group:
    """Events of one table, one schema and one kind. `kind`: "change", or an op that is none."""

    table: str | None
    kind: str | None
    problem: str | None
    schema_id: int | None
    wrapped: bool
    count: int
    first: Coordinates
    shape: str | None
    first_position: tuple[int, ...]
    last_position: tuple[int, ...]
    topics: tuple[str, ...]
    key_changes: bool = False
    snapshot: tuple[int, ...] | None = None
    """Where the reads of a snapshot stand that ends here."""


def profiles(events: DataFrame, slice_of: Column) -> dict[int, list[Group]]:
    """The groups of each slice (`EVENT` rows, told apart by `slice_of`), in the order in which they first appear in
    the transport."""
    kind = F.when(F.col("op").isin(*CHANGES), CHANGE).otherwise(F.col("op"))
    schemaless = F.col("schema_id").isNull() & F.col("op").isin(*CHANGES)
    text = F.when(schemaless, F.col("value").cast("string"))
    wrapped = F.coalesce("wrapped", F.lit(False)).alias("wrapped")
    rows = (
        events.groupBy(slice_of.alias("slice"), "source_table", kind.alias("kind"), "problem", "schema_id", wrapped)
        .agg(
            F.count(F.lit(1)).alias("count"),
            F.min(F.struct("offset", "topic", "partition")).alias("first"),
            shape(text, F.col("wrapped")).alias("shape"),
            F.min("position").alias("lowest"),
            F.max("position").alias("highest"),
            F.collect_set("topic").alias("topics"),
            F.bool_or(names_new_key()).alias("key_changes"),
            F.max(F.when(F.col("ends_snapshot"), F.col("position"))).alias("snapshot"),
            F.min(F.when(F.col("op") == "r", F.col("position"))).alias("read"),
        )
        .collect()  # a row per slice, table and schema
    )
    found: dict[int, list[Group]] = {}
    for r in (row.asDict() for row in rows):
        first = (r["first"]["topic"], r["first"]["partition"], r["first"]["offset"])
        seen = (r["count"], first, r["shape"], tuple(r["lowest"]), tuple(r["highest"]), tuple(r["topics"]))
        snapshot = _snapshot(r["snapshot"], r["read"])
        group = Group(
            r["source_table"], r["kind"], r["problem"], r["schema_id"], r["wrapped"], *seen, r["key_changes"], snapshot
        )
        found.setdefault(r["slice"], []).append(group)
    return {n: sorted(g, key=lambda one: (one.first[2], one.first[0], one.first[1])) for n, g in found.items()}


def _snapshot(end: Sequence[int] | None, lowest_read: Sequence[int] | None) -> tuple[int, ...] | None:
    """All reads of a snapshot stand at one position. Where they don't, nothing tells what is older than they are."""
    if end is None or (lowest_read is not None and tuple(lowest_read[:4]) != tuple(end[:4])):
        return None
    return tuple(end)


def at(coordinates: Sequence[Coordinates]) -> Column:
    """Selects the events at these coordinates."""
    found = F.lit(False)
    for topic, partition, offset in coordinates:
        here = (F.col("topic") == topic) & (F.col("partition") == partition) & (F.col("offset") == offset)
        found = found | here
    return found


def belongs_to(group: Group) -> Column:
    """Selects the events of a group of changes."""
    wrapped = F.coalesce(F.col("wrapped"), F.lit(False)) == F.lit(group.wrapped)
    schema = F.col("schema_id").eqNullSafe(F.lit(group.schema_id).cast("bigint"))
    return F.col("op").isin(*CHANGES) & (F.col("source_table") == group.table) & schema & wrapped
