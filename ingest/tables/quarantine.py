"""Quarantine: events that can't be applied, whole, with where they came from and why. Nothing is lost."""

from __future__ import annotations

import threading

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.envelope import BATCH, RECORD
from ingest.tables import delta_log, emptying
from ingest.tables.bronze import COORDINATES
from ingest.tables.contention import again

_SCHEMA = T.StructType(
    [
        T.StructField("pipeline", T.StringType()),
        T.StructField("table", T.StringType()),
        *RECORD.fields,
        T.StructField(BATCH, T.LongType()),
        T.StructField("code", T.StringType()),
        T.StructField("reason", T.StringType()),
    ]
)


class Quarantine:
    """The quarantine of a lakehouse, all pipelines in one table."""

    def __init__(self, spark: SparkSession, path: str, pipeline: str) -> None:
        self._table = delta_log.Table(spark, path)
        self._pipeline = pipeline
        # Tables are merged side by side; two first appends at once would both make the table.
        self._one_at_a_time = threading.Lock()

    def rows(self) -> DataFrame:
        """Of this pipeline alone."""
        return self._table.rows(_SCHEMA).where(F.col("pipeline") == self._pipeline)

    def add(self, events: DataFrame) -> None:
        """Bronze rows with `table`, `code` and `reason`. Coordinates that are here already add nothing."""
        named = events.withColumn("pipeline", F.lit(self._pipeline)).select(*_SCHEMA.names)
        with self._one_at_a_time:
            again()(self._append_new, named)

    def forget(self, gone: DataFrame) -> int:
        """Takes away the events at these `COORDINATES`. How many files were written anew for it."""
        mine = gone.select(*COORDINATES).withColumn("pipeline", F.lit(self._pipeline))
        return emptying.without(self._table, mine, ["pipeline", *COORDINATES], lambda rows, n: rows.coalesce(n))

    def _append_new(self, named: DataFrame) -> None:
        new = named.join(self.rows().select(*COORDINATES), COORDINATES, "left_anti").select(*_SCHEMA.names)
        self._table.commit(new, new=delta_log.NO_STATISTICS)
