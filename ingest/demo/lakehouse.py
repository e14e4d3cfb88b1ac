"""What the demonstration reads of the lakehouse: row counts, one claim's row, the lag of every streamed event."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from ingest.config import Pipeline
from ingest.tables import delta_log
from ingest.tables.accounts import Accounts
from ingest.tables.bronze import BATCH, Bronze
from ingest.tables.silver import Silver

COUNTS = ("read", "applied", "superseded", "quarantined", "suppressed")
_STREAMED = ("c", "u", "d")


@dataclass(frozen=True)
class Lag:
    """Seconds from a change's commit in the source to the commit that brought it to silver."""

    p50: float
    p95: float


class LakehouseView:
    """One pipeline's tables, read anew at each call."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._bronze = Bronze(spark, pipeline.layout.bronze(pipeline.name))
        self._accounts = Accounts(spark, pipeline.layout.accounts, pipeline.name)

    def silver(self, table: str) -> DataFrame:
        """The rows of `schema.table`."""
        return Silver(self._spark, self._pipeline.layout.silver(self._pipeline.name, table)).rows()

    def row(self, table: str, number: int) -> Row | None:
        """The row of this id; None where there is none, or no table yet."""
        if not delta_log.exists(self._spark, self._pipeline.layout.silver(self._pipeline.name, table)):
            return None
        return self.silver(table).where(F.col("id") == number).first()

    def events(self, table: str | None = None, op: str | None = None) -> int:
        """How many records bronze holds: of a table, of an op, or all."""
        rows = self._bronze.rows()
        if table is not None:
            rows = rows.where(F.col("source_table") == table)
        if op is not None:
            rows = rows.where(F.col("op") == op)
        return rows.count()

    def accounted(self) -> dict[str, int]:
        """What became of all events."""
        row = self._accounts.rows().agg(*(F.coalesce(F.sum(c), F.lit(0)).alias(c) for c in COUNTS)).first()
        return {} if row is None else row.asDict()

    def lag(self) -> Lag | None:
        """Over every change that came by the stream and not by the snapshot; None before the first."""
        slices = self._accounts.rows().select("after_batch", "upto_batch", "committed_at").distinct()
        merged = (F.col(BATCH) > F.col("after_batch")) & (F.col(BATCH) <= F.col("upto_batch"))
        micros = F.unix_micros("committed_at") - F.unix_micros("source_ts")
        streamed = self._bronze.rows().where(F.col("op").isin(*_STREAMED)).select(BATCH, "source_ts")
        row = (
            streamed.join(F.broadcast(slices), merged)
            .agg(F.percentile(micros / 1e6, F.array(F.lit(0.5), F.lit(0.95))).alias("lag"))
            .first()
        )
        return None if row is None or row["lag"] is None else Lag(*(round(float(s), 3) for s in row["lag"]))
