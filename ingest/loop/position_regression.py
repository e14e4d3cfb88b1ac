"""Detects a log that begins anew: its positions go back to a range that is taken, with events that were never
captured."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.batches.group_stats import Group, Progress
from ingest.changelog.change import EVENT_ID
from ingest.changelog.dialects.registry import transaction_ids
from ingest.changelog.position import PROGRESS, source_position
from ingest.errors import ChangelogUnusable
from ingest.lakehouse.bronze import COORDINATES, Bronze
from ingest.lakehouse.bronze.summary import BronzeSummary
from ingest.spark.local_rows import local_rows

ErasedEvents = Callable[[], Sequence[DataFrame]]
"""A function that returns the `EVENT_ID` of events that an erasure may have emptied in bronze: they can't be recognized
as captured before."""
_LOG = ["topic", "partition", "server", "epoch"]
_FURTHEST = T.StructType(
    [
        T.StructField("topic", T.StringType()),
        T.StructField("partition", T.IntegerType()),
        T.StructField("server", T.StringType()),
        T.StructField("epoch", T.IntegerType()),
        T.StructField("furthest", PROGRESS),
    ]
)


class PositionRegression:
    """Stops before a slice in which a partition goes back to events that it never held.

    A connector that restarts goes back too, but to events that it has sent before. Small slices are checked by their
    statistics: nothing in them goes back, and nothing is lower than what came before. The others are read."""

    def __init__(self, spark: SparkSession, bronze: Bronze, summary: BronzeSummary, stops: bool) -> None:
        self._spark = spark
        self._bronze = bronze
        self._summary = summary
        self._stops = stops
        self._highest: Progress | None = None
        self._furthest: dict[tuple[str, int, str | None, int], Progress] = {}
        self._learned_through = 0

    def check(self, after: int, through_batch: int, groups: Sequence[Group], erased: ErasedEvents = lambda: ()) -> None:
        """Checks the slice of batches after `after` through `through_batch`. Raises ChangelogUnusable."""
        ranges = [g.progress for g in groups if g.progress is not None]
        if not ranges or not self._stops:
            return
        if self._highest is None and after:
            self._learn(after)
        servers = {p[0] for range_ in ranges for p in range_} | ({self._highest[0]} if self._highest else set())
        onward = all(g.goes_back is False for g in groups if g.progress is not None)
        follows_known = self._highest is None or min(lowest for lowest, _ in ranges) >= self._highest
        if len(servers) == 1 and onward and follows_known:
            self._highest = max(highest for _, highest in ranges)
        else:
            self._search(after, through_batch, erased)
            self._highest = None  # Read again before the next slice, once this one is merged.

    def _learn(self, through_batch: int) -> None:
        """Reads how far each log had been sent in each partition by the batch `through_batch`."""
        self._furthest = {}
        for end in self._summary.log_ends(through_batch):
            if end.progress is not None:
                log = (end.topic, end.partition, end.server, end.epoch)
                self._furthest[log] = max(end.progress, self._furthest.get(log, end.progress))
        self._learned_through = through_batch
        newest = max((epoch for *_, epoch in self._furthest), default=0)
        self._highest = max((p for log, p in self._furthest.items() if log[-1] == newest), default=None)

    def _search(self, after: int, through_batch: int, erased: ErasedEvents) -> None:
        if after > self._learned_through:
            self._learn(after)
        with_progress = self._bronze.between(after, through_batch).where(F.col("progress").isNotNull())
        known = [
            dict(zip(_FURTHEST.names, (*log, dict(zip(PROGRESS.names, at, strict=True))), strict=True))
            for log, at in self._furthest.items()
        ]
        before = F.max("progress").over(
            Window.partitionBy(*_LOG).orderBy("offset").rowsBetween(Window.unboundedPreceding, -1)
        )
        events = with_progress.select("*", *_log()[2:]).withColumn("_before", before)
        events = events.join(F.broadcast(local_rows(self._spark, known, _FURTHEST)), _LOG, "left")
        furthest = F.greatest("_before", "furthest")
        regressed = events.withColumn("_before", furthest).where(F.col("progress") < F.col("_before")).localCheckpoint()
        if regressed.isEmpty():
            return
        new_events = self._new_events(regressed, self._bronze.all_between(0, through_batch)).localCheckpoint()
        if new_events.isEmpty():
            return
        for erased_events in erased():
            new_events = new_events.join(erased_events.select(f"{EVENT_ID}.*"), COORDINATES, "left_anti")
        first = new_events.orderBy("offset").first()
        if first is not None:
            raise _regression_error(first)

    def _new_events(self, regressed: DataFrame, history: DataFrame) -> DataFrame:
        """Returns the events that go back and that no earlier event of their partition equals."""
        same = ["topic", "partition", "source_table", "op", "_key", "_place"]
        named = {"_key": F.coalesce("key", F.lit(b"")), "_place": source_position(F.col("position"))}
        earlier = history.where(F.col("progress").isNotNull()).withColumns(named)
        earlier = earlier.groupBy(*same).agg(F.min("offset").alias("_first"))
        found = regressed.withColumns(named).join(earlier, same).withColumn("_transaction", _transaction())
        written = F.date_format("timestamp", "yyyy-MM-dd'T'HH:mm:ss.SSSXXX")
        return found.where(F.col("_first") == F.col("offset")).withColumn("_written", written)


def _log() -> list[Column]:
    server, epoch = F.col("progress.server").alias("server"), F.col("position.epoch").alias("epoch")
    return [F.col("topic"), F.col("partition"), server, epoch]


def _transaction() -> Column:
    """Returns the ID that names an event's transaction on every server, such as "GTID a:1"; null without one."""
    text, found = F.col("value").cast("string"), [F.lit(None).cast("string")]
    for name, field in transaction_ids():
        ids = (F.get_json_object(text, f"$.{path}.{field}") for path in ("payload.source", "source"))
        found.append(F.concat(F.lit(f"{name} "), F.coalesce(*ids)))
    return F.coalesce(*found)


def _regression_error(event: Row) -> ChangelogUnusable:
    now, before = event["progress"], event["_before"]
    written = "" if event["_written"] is None else f", written {event['_written']}"
    transaction = "" if event["_transaction"] is None else f" ({event['_transaction']})"
    where = f"partition {event['partition']} of topic {event['topic']} at offset {event['offset']}{written}"
    return ChangelogUnusable(
        f"{where} goes back from {before['major']}:{before['minor']} of the log of {now['server'] or 'its source'} "
        f"to {now['major']}:{now['minor']}{transaction}, and the event was never captured before",
        "if the log was restarted (another server took over, a backup was restored), name the time in the pipeline as "
        "source: {epochs: [...]}; if these are late events of the same log, set source: {restarts: ignore}",
    )
