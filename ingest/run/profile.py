"""What a slice of bronze holds, before any of it is decoded: tables, schemas, counts. One Spark job, metadata only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest.changelog.envelope import CHANGES
from ingest.changelog.inference import are_whole, images, shape
from ingest.changelog.key_change import names_new_key

Coordinates = tuple[str, int, int]
Progress = tuple[str, int, int]
"""How far the log of a server had been sent: its name, and two numbers."""
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
    partitions: tuple[tuple[str, int], ...]
    key_changes: bool = False
    snapshot: tuple[int, ...] | None = None
    """Where the reads of a snapshot stand that ends here."""
    progress: tuple[Progress, Progress] | None = None
    """The lowest and the highest one."""
    goes_back: bool | None = None
    """Whether one is lower than one before it in its partition; None where nobody has looked."""
    opened: bool = True
    """Whether every image without a schema could be opened: `shape` is one of all."""
    newest: int | None = None
    """When the last of its changes was made at its source, in milliseconds since 1970."""

    @property
    def topics(self) -> set[str]:
        return {topic for topic, _ in self.partitions}

    @property
    def placed(self) -> bool:
        """Whether the source gave positions to all of them."""
        return any(self.first_position[1:3])


def profiles(events: DataFrame, slice_of: Column, few: bool = False) -> dict[int, list[Group]]:
    """The groups of each slice (`EVENT` rows, told apart by `slice_of`), in the order in which they first appear in
    the transport. `few`: there are so few events that their positions can be compared one after the other."""
    kind = F.when(F.col("op").isin(*CHANGES), CHANGE).otherwise(F.col("op"))
    schemaless = F.col("schema_id").isNull() & F.col("op").isin(*CHANGES)
    text = F.when(schemaless, F.col("value").cast("string"))
    wrapped = F.coalesce("wrapped", F.lit(False)).alias("wrapped")
    rows = (
        # Apart: in an aggregate it would be read again for each mention.
        events.withColumn("_images", images(text))
        .groupBy(slice_of.alias("slice"), "source_table", kind.alias("kind"), "problem", "schema_id", wrapped)
        .agg(
            F.count(F.lit(1)).alias("count"),
            F.min(F.struct("offset", "topic", "partition")).alias("first"),
            shape(F.col("_images"), F.col("wrapped")).alias("shape"),
            F.bool_and(~schemaless | are_whole(F.col("_images"))).alias("opened"),
            F.min("position").alias("lowest"),
            F.max("position").alias("highest"),
            F.collect_set(F.struct("topic", "partition")).alias("partitions"),
            F.bool_or(names_new_key()).alias("key_changes"),
            F.max(F.when(F.col("ends_snapshot"), F.col("position"))).alias("snapshot"),
            F.min(F.when(F.col("op") == "r", F.col("position"))).alias("read"),
            F.min("progress").alias("earliest"),
            F.max("progress").alias("furthest"),
            (_goes_back() if few else F.lit(None).cast("boolean")).alias("goes_back"),
            F.max(F.unix_millis("source_ts")).alias("newest"),
        )
        .collect()  # a row per slice, table and schema
    )
    found: dict[int, list[Group]] = {}
    for r in (row.asDict() for row in rows):
        first = (r["first"]["topic"], r["first"]["partition"], r["first"]["offset"])
        partitions = tuple(sorted((p["topic"], p["partition"]) for p in r["partitions"]))
        seen = (r["count"], first, r["shape"], tuple(r["lowest"]), tuple(r["highest"]), partitions)
        snapshot = _snapshot(r["snapshot"], r["read"])
        group = Group(
            r["source_table"],
            r["kind"],
            r["problem"],
            r["schema_id"],
            r["wrapped"],
            *seen,
            r["key_changes"],
            snapshot,
            None if r["earliest"] is None else (tuple(r["earliest"]), tuple(r["furthest"])),
            r["goes_back"],
            r["opened"],
            r["newest"],
        )
        found.setdefault(r["slice"], []).append(group)
    return {n: sorted(g, key=lambda one: (one.first[2], one.first[0], one.first[1])) for n, g in found.items()}


def _goes_back() -> Column:
    """Aggregate: whether the log goes back anywhere, event by event in the order of each partition."""
    sent = F.when(F.col("progress").isNotNull(), F.struct("topic", "partition", "offset", "progress"))
    events = F.sort_array(F.collect_list(sent))

    def back(earlier: Column, later: Column) -> Column:
        there = (earlier["topic"] == later["topic"]) & (earlier["partition"] == later["partition"])
        return there & (later["progress"] < earlier["progress"])

    # The last one is followed by none, which is no step back.
    steps = F.zip_with(events, F.slice(events, 2, F.greatest(F.size(events), F.lit(1))), back)
    return F.coalesce(F.exists(steps, lambda step: step), F.lit(False))


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
