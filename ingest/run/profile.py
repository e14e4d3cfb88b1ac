"""What a slice of bronze holds, before any of it is decoded: tables, schemas, counts. One Spark job, metadata only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest.changelog.envelope import CHANGES
from ingest.changelog.inference import shape

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
    last_position: tuple[int, ...]
    topics: tuple[str, ...]


def profile(events: DataFrame) -> list[Group]:
    """The groups of a slice (`EVENT` rows), in the order in which they first appear in the transport."""
    kind = F.when(F.col("op").isin(*CHANGES), CHANGE).otherwise(F.col("op"))
    schemaless = F.col("schema_id").isNull() & F.col("op").isin(*CHANGES)
    text = F.when(schemaless, F.col("value").cast("string"))
    rows = (
        events.groupBy("source_table", kind.alias("kind"), "problem", "schema_id", F.coalesce("wrapped", F.lit(False)))
        .agg(
            F.count(F.lit(1)),
            F.min(F.struct("offset", "topic", "partition")),
            shape(text, F.col("wrapped")),
            F.max("position"),
            F.collect_set("topic"),
        )
        .collect()  # a row per table and schema
    )
    groups = [
        Group(r[0], r[1], r[2], r[3], r[4], r[5], (r[6][1], r[6][2], r[6][0]), r[7], tuple(r[8]), tuple(r[9]))
        for r in rows
    ]
    return sorted(groups, key=lambda g: (g.first[2], g.first[0], g.first[1]))


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
