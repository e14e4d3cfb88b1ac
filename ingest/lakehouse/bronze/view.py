"""Bronze's events by the pipeline file's present settings. Bronze stores what the source gave: positions without their
epoch, plain table names and, in older tables, no origins."""

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
    """Settings by which bronze is read. `epochs`: the times at which the source's log began anew. `names`: how tables
    are named."""

    epochs: Sequence[datetime]
    names: TableNaming

    def of(self, rows: DataFrame, have_origins: bool) -> DataFrame:
        """Returns rows of bronze with `position` and `source_table` by these settings. `have_origins`: each row has its
        origin; otherwise it is parsed out of the value."""
        if not have_origins:
            rows = self._with_origins(rows)
        if not self.names.is_unqualified:
            rows = rows.withColumn("source_table", self.table())
        return rows.withColumn("position", self.position()) if self.epochs else rows

    def position(self) -> Column:
        """Returns an event's position with its epoch."""
        position = F.col("position")
        return in_epoch(position, F.col("timestamp"), self.epochs) if self.epochs else position

    def table(self) -> Column:
        """Returns the name of an event's table."""
        return self.names.qualified(F.col("source_table"), F.col(ORIGIN))

    def _with_origins(self, rows: DataFrame) -> DataFrame:
        stored = F.col(ORIGIN) if ORIGIN in rows.columns else F.lit(None).cast("string")
        origin = F.coalesce(stored, origin_of_value(F.col("value")))
        return rows.withColumn(ORIGIN, F.when(F.col("topic").isin(*self.names.mapped), UNNAMED).otherwise(origin))
