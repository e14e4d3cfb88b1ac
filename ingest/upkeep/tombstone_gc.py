"""Deletes tombstones up to a horizon: below it no input holds an event any more, or the user set it by age.

A topic can deliver every event that it still holds again, and so can an archive, so the horizon is at most the earliest
of these events. A topic or an archive that is kept for ever therefore keeps all tombstones, unless the user limits
their age.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.change import POSITION_COLUMN
from ingest.changelog.envelope import BATCH, CHANGES
from ingest.config import Pipeline
from ingest.lakehouse.accounts import Accounts
from ingest.lakehouse.bronze import Bronze
from ingest.lakehouse.catalog import Catalog
from ingest.lakehouse.rekeying import is_complete
from ingest.lakehouse.silver import Silver
from ingest.lakehouse.tombstones import Tombstones
from ingest.names import Lakehouse
from ingest.pipeline.composition import layout_of
from ingest.sources.kafka_admin import KafkaAdmin
from ingest.spark.local_rows import local_rows

_RETAINED = T.StructType(
    [
        T.StructField("topic", T.StringType()),
        T.StructField("partition", T.IntegerType()),
        T.StructField("earliest", T.LongType()),
    ]
)
Position = tuple[int, ...]
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class GcResult:
    """The result for one table. `horizon`: the new one; None if it is unchanged. `forgotten`: the number of deleted
    tombstones."""

    table: str
    tombstones: int
    forgotten: int
    horizon: Position | None


def earliest_offsets_of(spark: SparkSession, pipeline: Pipeline) -> dict[str, dict[int, int]]:
    """Returns topic → partition → the first offset that the broker, or the archive if there is one, still holds."""
    source = pipeline.source
    admin = KafkaAdmin(source.kafka)
    earliest_offsets = {
        t: dict(p) for t, p in admin.beginning_offsets(admin.topics(source.topics, source.changelog_pattern)).items()
    }
    for one in layout_of(spark, pipeline).objects() if pipeline.archive is not None else ():
        partitions = earliest_offsets.setdefault(one.topic, {})
        partitions[one.partition] = min(one.first_offset, partitions.get(one.partition, one.first_offset))
    return earliest_offsets


def input_horizons(spark: SparkSession, bronze: Bronze, earliest_offsets: Mapping[str, Mapping[int, int]]) -> DataFrame:
    """Returns table → `horizon`, below which no input holds an event any more. `earliest_offsets`: topic → partition →
    the first offset that an input still holds."""
    rows = [
        {"topic": topic, "partition": partition, "earliest": offset}
        for topic, partitions in earliest_offsets.items()
        for partition, offset in partitions.items()
    ]
    events = bronze.rows().where(F.col("op").isin(*CHANGES))
    known = events.join(F.broadcast(local_rows(spark, rows, _RETAINED)), ["topic", "partition"], "left")
    earliest_held = F.min(F.when(F.col("offset") >= F.col("earliest"), F.col("position")))
    return known.groupBy("source_table").agg(F.coalesce(earliest_held, F.max("position")).alias("horizon"))


def age_horizons(bronze: Bronze, moment: datetime) -> DataFrame:
    """Returns table → `horizon`, the position of its newest event that was written to the topic before `moment`."""
    events = bronze.rows().where(F.col("op").isin(*CHANGES) & (F.col("timestamp") < F.lit(moment)))
    return events.groupBy("source_table").agg(F.max("position").alias("horizon"))


def collect_garbage(
    spark: SparkSession, pipeline: str, lakehouse: Lakehouse, bronze: Bronze, horizons: DataFrame, dry_run: bool
) -> list[GcResult]:
    """Raises the horizon of each table with a key to `horizons`, but not beyond the first event that isn't merged yet,
    nor beyond the first row that waits under an earlier key."""
    accounts = Accounts(spark, lakehouse.accounts, pipeline)
    is_waiting = F.col(BATCH) > accounts.merged_through()
    for table, set_aside in accounts.set_aside().items():
        is_waiting |= (F.col("source_table") == table) & (F.col(BATCH) > set_aside.after)
    waiting = bronze.rows().where(is_waiting & F.col("op").isin(*CHANGES))
    behind = waiting.groupBy("source_table").agg(F.min("position").alias("_lowest_waiting"))
    limited = horizons.join(behind, "source_table", "left").withColumn("horizon", F.least("horizon", "_lowest_waiting"))
    found = {r["source_table"]: tuple(r["horizon"]) for r in limited.collect()}  # a row per table
    results = []
    for entry in Catalog(spark, lakehouse.tables).entries(pipeline):
        table = entry.table_schema.table
        if entry.table_schema.key:
            horizon = found.get(table)
            if horizon is not None and entry.former_keys:
                horizon = _below_hidden_rows(Silver(spark, lakehouse.pending(pipeline, table)), table, horizon)
            results.append(_collect(Tombstones(spark, lakehouse.tombstones(pipeline, table)), table, horizon, dry_run))
    return results


def _below_hidden_rows(pending: Silver, table: str, horizon: Position) -> Position:
    """Returns `horizon`, but at most the position of the oldest row that is hidden by a newer one with the same key:
    the tombstones above it tell which of them carried an earlier key, and so whether it is shown once the newer one
    proves to be deleted."""
    hidden = pending.rows().where(is_complete()) if pending.exists() else None
    row = None if hidden is None else hidden.agg(F.min(POSITION_COLUMN).alias("at"), F.count("*").alias("rows")).first()
    if row is None or row["at"] is None or tuple(row["at"]) >= horizon:
        return horizon
    _log.warning(
        "%s: tombstones are kept because %d rows of an earlier key wait for events that delete them: read the table "
        "again if none will come (ingest resync PIPELINE TABLE)",
        table,
        row["rows"],
    )
    return tuple(row["at"])


def _collect(tombstones: Tombstones, table: str, horizon: Position | None, dry_run: bool) -> GcResult:
    current = tombstones.horizon()
    count = tombstones.count()
    if horizon is None or not count or (current is not None and horizon <= current):
        return GcResult(table, count, 0, None)
    forgotten = tombstones.count(horizon)
    if forgotten and not dry_run:
        tombstones.forget(horizon)
    return GcResult(table, count, forgotten, horizon if forgotten else None)
