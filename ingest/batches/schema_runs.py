"""Finds which schemas the events of a table have, in the order of their positions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from ingest.batches.group_stats import Coordinates, Group
from ingest.changelog.position import is_read_without_position, position_literal
from ingest.errors import TableUnusable
from ingest.evolution.definition import Place

_MOST_RUNS = 10_000


@dataclass(frozen=True)
class SchemaRun:
    """Successive events with one schema. `first`, `last`: their lowest and highest positions. `event`: the coordinates
    of the first one."""

    schema_id: int
    first: Place
    last: Place
    event: Coordinates


def runs_of_groups(groups: Iterable[Group]) -> list[SchemaRun] | None:
    """Returns the runs of groups whose events have a schema, in the order of positions; None if the groups' statistics
    don't tell them: events of two schemas alternate, or reads have no position."""
    found = sorted((g.first_position, g.last_position, g.schema_id, g.first, g.may_have_unplaced_reads) for g in groups)
    if any(unplaced for *_, unplaced in found) or any(last >= first for (_, last, *_), (first, *_) in pairwise(found)):
        return None
    return [SchemaRun(schema_id, first, last, at) for first, last, schema_id, at, _ in found if schema_id is not None]


def schema_runs(events: DataFrame, table: str, begin: Place | None = None, end: Place | None = None) -> list[SchemaRun]:
    """Returns the runs at and above `begin`, below `end`, of a table's events, in the order of positions; each is as
    long as it can be. Reads without a position and events without a schema have none. One Spark job, which sorts the
    events' positions; a row per run comes back.

    Raises TableUnusable if schemas alternate too often to be those of one table."""
    position = F.col("position")
    rows = events.where(F.col("schema_id").isNotNull() & ~is_read_without_position(position))
    if begin is not None:
        rows = rows.where(position >= position_literal(begin))
    if end is not None:
        rows = rows.where(position < position_literal(end))
    in_order = Window.orderBy("position")
    begins = F.coalesce(F.col("schema_id") != F.lag("schema_id").over(in_order), F.lit(True)).cast("long")
    coordinates = F.struct("topic", "partition", "offset").alias("event")
    numbered = rows.select("schema_id", "position", coordinates, begins.alias("_begins"))
    numbered = numbered.withColumn("_run", F.sum("_begins").over(in_order))
    runs = numbered.groupBy("_run", "schema_id").agg(
        F.min("position").alias("first"), F.max("position").alias("last"), F.min_by("event", "position").alias("event")
    )
    found = runs.orderBy("first").limit(_MOST_RUNS + 1).collect()
    if len(found) > _MOST_RUNS:
        raise TableUnusable(
            "schemas-alternate",
            f"the columns of table {table} change more than {_MOST_RUNS} times: several tables seem to share its name",
            "give each a table of its own (source: {table_names: server.schema.table}), or leave the table out",
        )
    return [SchemaRun(run.schema_id, tuple(run.first), tuple(run.last), tuple(run.event)) for run in found]
