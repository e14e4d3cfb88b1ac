"""The backfills of a lakehouse: the request of each, its start and its end. A backfill that died is found by its
request, and continues where it stopped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.delta import delta_table
from ingest.delta.txn_versions import TxnVersion
from ingest.spark.local_rows import local_rows

REBUILD = "rebuild"
"""The source in the request of a rebuild."""

_SCHEMA = T.StructType(
    [
        T.StructField("pipeline", T.StringType()),
        T.StructField("number", T.LongType()),
        T.StructField("asked", T.StringType()),
        T.StructField("upto_batch", T.LongType()),
        T.StructField("began_at", T.TimestampType()),
        T.StructField("ended_at", T.TimestampType()),
    ]
)


@dataclass(frozen=True)
class BackfillRun:
    """A backfill that was started. `request`: as JSON has it. `upto_batch`: the last capture batch of bronze that it
    reads."""

    pipeline: str
    number: int
    request: Mapping[str, Any]
    upto_batch: int
    began_at: datetime
    ended_at: datetime | None = None

    @property
    def writer(self) -> str:
        """Returns the name of the writer of its accounts."""
        return f"{self.pipeline} backfill {self.number}"


class Backfills:
    """The backfills of one pipeline. The table has a row for the start of each and another for its end."""

    def __init__(self, spark: SparkSession, path: str, pipeline: str) -> None:
        self._spark = spark
        self._table = delta_table.Table(spark, path)
        self._pipeline = pipeline

    def all(self) -> list[BackfillRun]:
        """Returns all backfills, by number."""
        if not self._table.exists():
            return []
        rows = self._table.rows().where(F.col("pipeline") == self._pipeline)
        ended = rows.groupBy(*_SCHEMA.names[:-1]).agg(F.max("ended_at").alias("ended_at")).orderBy("number")
        return [
            BackfillRun(
                r.pipeline,
                r.number,
                json.loads(r.asked),
                r.upto_batch,
                _utc(r.began_at),
                r.ended_at and _utc(r.ended_at),
            )
            for r in ended.collect()  # a row per backfill
        ]

    def start(self, request: Mapping[str, Any], upto_batch: int) -> BackfillRun:
        """Returns the backfill with the same request that has not ended, or starts a new one.

        Raises Contended if another backfill starts at the same time."""
        known = self.all()
        unfinished = [b for b in known if b.ended_at is None and b.request == request]
        if unfinished:
            return unfinished[-1]
        started = BackfillRun(self._pipeline, len(known) + 1, request, upto_batch, datetime.now(UTC))
        self._record(started, TxnVersion(self._pipeline, started.number))
        return started

    def end(self, backfill: BackfillRun) -> None:
        """Records the end of a backfill."""
        self._record(replace(backfill, ended_at=datetime.now(UTC)), None)

    def _record(self, backfill: BackfillRun, txn_version: TxnVersion | None) -> None:
        row = {name: getattr(backfill, name) for name in _SCHEMA.names if name != "asked"}
        row["asked"] = json.dumps(backfill.request)
        self._table.commit(
            local_rows(self._spark, [row], _SCHEMA), txn_version=txn_version, properties=delta_table.NO_STATISTICS
        )


def _utc(time: datetime) -> datetime:
    """Returns a time of Spark's, which has no zone and means this machine's, in UTC."""
    return time.astimezone(UTC)
