"""Records that a table was read again as a whole, so that its rows which were not read are gone at the source.

The record counts only if every event of the table that was sent after the signal is newer than every row from before
it. Then a row that is older than all of these events was neither read nor changed since: the source doesn't hold it.
A connector that restarts sends old events again, and one that is in the middle of a transaction sends reads as of the
transaction before; the resync has to be repeated then. So it has to where a row was read before its delete and sent
after it, which `SnapshotWatch` does not exclude, or before a TRUNCATE, for which Debezium drops no read: that row looks
as if it were there.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from ingest.backfill.resync import TableRead
from ingest.changelog.change import POSITION_COLUMN
from ingest.changelog.envelope import CHANGES, TOMBSTONE, events
from ingest.changelog.position import highest_position_at, is_unplaced_read_at
from ingest.changelog.resync_record import resync_record
from ingest.config import Pipeline
from ingest.errors import ConfigError, Contended, Unreachable
from ingest.lakehouse.bronze.view import BronzeView
from ingest.lakehouse.catalog import CatalogEntry
from ingest.lakehouse.silver import Silver
from ingest.pipeline.composition import decoding_of, rules_of
from ingest.sources.contract import OffsetRange
from ingest.sources.kafka import KafkaSource
from ingest.sources.kafka_admin import KafkaAdmin
from ingest.sources.signal_topics import create_topics, send

_KEPT_FOR_EVER = {"cleanup.policy": "delete", "retention.ms": "-1"}
_POLL_SECONDS = 1.0


class WholeRead:
    """A resync of a table that silver has. To be made before the signal is sent."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, entry: CatalogEntry) -> None:
        self._spark, self._pipeline, self._entry = spark, pipeline, entry
        self._admin = KafkaAdmin(pipeline.source.kafka)
        silver = Silver(spark, entry.path)
        highest = silver.rows().agg(F.max(POSITION_COLUMN).alias("at")).first() if silver.exists() else None
        self._floor = None if highest is None or highest["at"] is None else highest_position_at(tuple(highest["at"]))
        # Later than the floor: an event that is merged in between is older than the signal.
        self._begin = self._admin.end_offsets(entry.topics)

    def record(self, read: TableRead, patience_seconds: float) -> bool:
        """Writes the record to the topic of resyncs. Returns False if silver had no row that could be gone.

        Raises Contended where an event that was sent after the signal is not newer than the rows from before, and
        Unreachable where the reads don't arrive in time."""
        table, topics = self._entry.table_schema.table, self._pipeline.source.control_topics
        if self._floor is None or topics is None:
            return False
        sent = self._sent_since(read, patience_seconds)
        if sent["lowest"] is not None and tuple(sent["lowest"]) <= self._floor:
            if is_unplaced_read_at(tuple(sent["lowest"])):
                raise ConfigError(
                    f"the reads of {table} have no position, so it isn't known which rows they replace",
                    "use Debezium 3.7.0 or later; a signal of type blocking also takes a whole new snapshot",
                )
            raise self._uncertain("the connector was restarted, or in the middle of a transaction")
        if sent["has_old_reads"]:
            raise self._uncertain("rows were deleted")
        newest = self._floor if sent["highest"] is None else tuple(sent["highest"])
        now = int(datetime.now(UTC).timestamp() * 1000)
        record = resync_record(read.table, self._entry.origin, self._floor, newest, now, read.signal)
        kafka = self._pipeline.source.kafka
        create_topics(kafka, {topics.resyncs: _KEPT_FOR_EVER})
        send(kafka, topics.resyncs, None, record)
        return True

    def _uncertain(self, cause: str) -> Contended:
        return Contended(
            f"{cause} when {self._entry.table_schema.table} was read: the reads count, but rows that are gone at the "
            "source stay",
            f"merge them (`ingest run {self._pipeline.name}`), then run the same command again",
        )

    def _sent_since(self, read: TableRead, patience_seconds: float) -> Row:
        """Returns what `read_summary` does of the events since the signal, once they concern as many rows as were
        read."""
        deadline = time.monotonic() + patience_seconds
        while True:
            found = self._events_since()
            # A row that changed while it was read has an event in place of its read.
            if read.rows is not None and found["rows"] >= read.rows:
                return found
            if time.monotonic() > deadline:
                raise Unreachable(
                    f"{found['rows']} of {read.rows} rows of {self._entry.table_schema.table} have come to topic "
                    f"{', '.join(self._entry.topics)} since they were read; rows that are gone at the source stay",
                    "run the same command again; if the table changes all the time, with --signal-table",
                )
            time.sleep(_POLL_SECONDS)

    def _events_since(self) -> Row:
        source, rules = self._pipeline.source, rules_of(self._pipeline)
        span = OffsetRange(self._begin, self._admin.end_offsets(self._begin))
        records = KafkaSource(source.kafka, self._entry.topics, None).read(self._spark, span)
        decoding = decoding_of(self._spark, self._pipeline)
        if decoding is not None:
            records = decoding.of(records)
        placed = BronzeView(rules.epochs, rules.names).of(events(records, rules.naming), have_origins=True)
        found = read_summary(placed.where(F.col("source_table") == self._entry.table_schema.table)).first()
        assert found is not None  # an aggregate of no events is a row, too
        return found


def read_summary(events: DataFrame) -> DataFrame:
    """Returns one row about a table's events since it was asked for.

    Columns:
        rows: the number of rows with events.
        lowest, highest: positions of these events.
        has_old_reads: a read of a row follows its delete, and no change between tells that the row was back; or the
            table was truncated, which concerns all keys.
    """
    op, offset, is_change = F.col("op"), F.col("offset"), F.col("op").isin(*CHANGES)
    by_key = (
        events.where(is_change | op.isin(TOMBSTONE, "t"))
        .groupBy("topic", "partition", "key")
        .agg(
            F.count_if(is_change).alias("events"),
            F.min(F.when(is_change, F.col("position"))).alias("lowest"),
            F.max(F.when(is_change, F.col("position"))).alias("highest"),
            F.bool_or(op == "t").alias("is_truncated"),
            F.max(F.when(op.isin("d", TOMBSTONE), offset)).alias("deleted"),
            F.max(F.when(op.isin("c", "u"), offset)).alias("written"),
            F.max(F.when(op == "r", offset)).alias("read"),
        )
    )
    is_old = (F.col("read") > F.col("deleted")) & (F.coalesce("written", F.lit(-1)) < F.col("deleted"))
    # Records of a table whose key only the pipeline's file declares have none.
    keyless = F.sum(F.when(F.col("key").isNull(), F.col("events")))
    return by_key.agg(
        (F.count_distinct(F.when(F.col("events") > 0, F.col("key"))) + F.coalesce(keyless, F.lit(0))).alias("rows"),
        F.min("lowest").alias("lowest"),
        F.max("highest").alias("highest"),
        F.coalesce(F.bool_or(F.col("is_truncated") | F.coalesce(is_old, F.lit(False))), F.lit(False)).alias(
            "has_old_reads"
        ),
    )
