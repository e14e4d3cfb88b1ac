"""The events of bronze as a pipeline's file reads them now. Bronze keeps what the source gave: positions without the
life of the log, plain table names, and, if it is old enough, no origins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest.changelog.origin import ORIGIN, UNNAMED, TableNaming, origin_of_value
from ingest.changelog.position import in_epoch


@dataclass(frozen=True)
class BronzeView:
    """`epochs`: when the source's log began anew. `names`: how tables are named."""

    epochs: Sequence[datetime]
    names: TableNaming

    def of(self, rows: DataFrame, have_origins: bool) -> DataFrame:
        """The rows of bronze in this view. `have_origins`: each row has its origin."""
        if not have_origins:
            rows = self._with_origins(rows)
        if not self.names.is_unqualified:
            rows = rows.withColumn("source_table", self.table())
        return rows.withColumn("position", self.position()) if self.epochs else rows

    def position(self) -> Column:
        """Where an event stands."""
        position = F.col("position")
        return in_epoch(position, F.col("timestamp"), self.epochs) if self.epochs else position

    def table(self) -> Column:
        """The table of an event."""
        return self.names.qualified(F.col("source_table"), F.col(ORIGIN))

    def _with_origins(self, rows: DataFrame) -> DataFrame:
        held = F.col(ORIGIN) if ORIGIN in rows.columns else F.lit(None).cast("string")
        found = F.coalesce(held, origin_of_value(F.col("value")))
        return rows.withColumn(ORIGIN, F.when(F.col("topic").isin(*self.names.mapped), UNNAMED).otherwise(found))
