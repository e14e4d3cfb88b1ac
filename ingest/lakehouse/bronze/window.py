"""A part of bronze that a backfill merges by itself."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.changelog.envelope import BATCH
from ingest.changelog.origin import TableNaming
from ingest.changelog.point import or_unplaced
from ingest.lakehouse.bronze.table import Bronze
from ingest.tuning import DEFAULT_TUNING, Tuning


class BronzeWindow(Bronze):
    """The events of bronze that meet the condition `chosen` (all, if it is None) in the capture batches up to
    `through_batch`, for reading only."""

    def __init__(
        self,
        spark: SparkSession,
        path: str,
        chosen: Column | None,
        through_batch: int,
        epochs: Sequence[datetime] = (),
        names: TableNaming | None = None,
        tuning: Tuning = DEFAULT_TUNING,
    ) -> None:
        super().__init__(spark, path, epochs, names, tuning)
        self.chosen = chosen
        self._chosen_or_unplaced = F.lit(True) if chosen is None else or_unplaced(chosen)
        self._through_batch = through_batch
        if chosen is not None:
            # The merge starts at the first batch that has a chosen event.
            found = (
                super().rows().where((F.col(BATCH) <= through_batch) & chosen).agg(F.min(BATCH).alias("first")).first()
            )
            self.begins_after = found["first"] - 1 if found and found["first"] is not None else through_batch

    @property
    def is_part(self) -> bool:
        return True

    def last_batch(self) -> int:
        return self._through_batch

    def between(self, after: int, through_batch: int) -> DataFrame:
        return super().between(after, through_batch).where(self._chosen_or_unplaced)

    def all_between(self, after: int, through_batch: int) -> DataFrame:
        return super().between(after, through_batch)

    def compact(self, through_batch: int) -> bool:
        """Returns False: the pipeline's own merge compacts the files of bronze."""
        return False
