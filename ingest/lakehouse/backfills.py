"""The backfills of a lakehouse: what was asked for, when each began and ended. One that died is found again by what it
was asked for, and goes on where it stood."""

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
"""The source that a rebuild is asked for."""

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
    """A backfill: its number, what was `asked` for, and the last capture batch that it reads of bronze."""

    pipeline: str
    number: int
    asked: Mapping[str, Any]
    upto_batch: int
    began_at: datetime
    ended_at: datetime | None = None

    @property
    def writer(self) -> str:
        """Under which its accounts are kept."""
        return f"{self.pipeline} backfill {self.number}"


class Backfills:
    """Of one pipeline. A row is appended when one begins, and another when it ends."""

    def __init__(self, spark: SparkSession, path: str, pipeline: str) -> None:
        self._spark = spark
        self._table = delta_table.Table(spark, path)
        self._pipeline = pipeline

    def all(self) -> list[BackfillRun]:
        """By number."""
        if not self._table.exists():
            return []
        mine = self._table.rows().where(F.col("pipeline") == self._pipeline)
        ended = mine.groupBy(*_SCHEMA.names[:-1]).agg(F.max("ended_at").alias("ended_at")).orderBy("number")
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

    def start(self, asked: Mapping[str, Any], upto_batch: int) -> BackfillRun:
        """The one that was asked for in the same words and hasn't ended, or a new one.

        Raises Contended where another one begins at this moment."""
        known = self.all()
        left = [b for b in known if b.ended_at is None and b.asked == asked]
        if left:
            return left[-1]
        begun = BackfillRun(self._pipeline, len(known) + 1, asked, upto_batch, datetime.now(UTC))
        self._record(begun, TxnVersion(self._pipeline, begun.number))
        return begun

    def end(self, backfill: BackfillRun) -> None:
        self._record(replace(backfill, ended_at=datetime.now(UTC)), None)

    def _record(self, backfill: BackfillRun, progress: TxnVersion | None) -> None:
        row = {name: getattr(backfill, name) for name in _SCHEMA.names} | {"asked": json.dumps(backfill.asked)}
        self._table.commit(
            local_rows(self._spark, [row], _SCHEMA), txn_version=progress, properties=delta_table.NO_STATISTICS
        )


def _utc(time: datetime) -> datetime:
    """Spark hands times over in this machine's zone, without saying so."""
    return time.astimezone(UTC)
