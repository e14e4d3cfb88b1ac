"""Bronze with a batch that is not stored yet, for a look at its events before they are."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.changelog.envelope import BATCH, CAPTURED
from ingest.changelog.origin import TableNaming
from ingest.lakehouse.bronze.table import Bronze
from ingest.tuning import DEFAULT_TUNING, Tuning


class BronzeWithArriving(Bronze):
    """Bronze and `arriving`, the events of its next batch, for reading only."""

    def __init__(
        self,
        spark: SparkSession,
        path: str,
        arriving: DataFrame,
        batch: int,
        size: int,
        epochs: Sequence[datetime] = (),
        names: TableNaming | None = None,
        tuning: Tuning = DEFAULT_TUNING,
    ) -> None:
        """`batch`: the number of the arriving batch. `size`: its number of events, at most."""
        super().__init__(spark, path, epochs, names, tuning)
        rows = arriving.withColumn(BATCH, F.lit(batch).cast("bigint")).select(*CAPTURED.names)
        self._arriving = self._view.of(rows, have_origins=True)
        self._batch = batch
        self._size = size

    def between(self, after: int, through_batch: int) -> DataFrame:
        if through_batch < self._batch:
            return super().between(after, through_batch)
        if after >= self._batch - 1:
            return self._arriving
        stored = super().between(after, self._batch - 1)
        return stored.unionByName(self._arriving, allowMissingColumns=True)

    def count_between(self, after: int, through_batch: int) -> int:
        arriving = self._size if after < self._batch <= through_batch else 0
        return arriving + super().count_between(after, min(through_batch, self._batch - 1))
