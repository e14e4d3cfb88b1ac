"""The interface of contenders, and what they share. Each merges the same records, batch by batch, into its own table.

This module and `workload` need only some version of PySpark: each contender runs in its own environment.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from tests.bench.workload import COLUMNS, IMAGE

ENVELOPE = f"before struct<id bigint>, after struct<{IMAGE}>, op string, source struct<lsn bigint>"


class Contender(Protocol):
    """A system to benchmark. Methods in the order of their calls."""

    def load(self, snapshot: DataFrame) -> None:
        """Loads a part of the initial table. May be called several times."""

    def enqueue(self, batch: DataFrame) -> None:
        """Stores a batch where the contender reads it from. Not timed."""

    def apply(self) -> None:
        """Merges the oldest stored batch into the table. Timed."""

    def rows(self) -> DataFrame:
        """Returns the table, with the columns of the workload."""


class BatchQueue:
    """A queue of batches of raw records, in Parquet files."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._ready: list[str] = []
        self._count = 0

    def add(self, batch: DataFrame) -> None:
        """Appends a batch."""
        path = str(self._folder / f"batch-{self._count}")
        batch.write.parquet(path)
        self._ready.append(path)
        self._count += 1

    def next_path(self) -> str:
        """Removes the oldest batch and returns its folder."""
        return self._ready.pop(0)

    def next(self) -> DataFrame:
        """Removes the oldest batch and returns its records."""
        return self._spark.read.parquet(self.next_path())


def parse(records: DataFrame, *more: str) -> DataFrame:
    """Returns a row per event: the columns of the table, `lsn`, `gone` (true for a delete), and `more` columns of the
    record."""
    event = records.select(*more, F.from_json(F.col("value").cast("string"), ENVELOPE).alias("e"))
    key = F.coalesce("e.after.id", "e.before.id").alias("id")
    image = [F.col(f"e.after.{column}").alias(column) for column in COLUMNS[1:]]
    gone = (F.col("e.op") == "d").alias("gone")
    return event.select(*more, key, *image, F.col("e.source.lsn").alias("lsn"), gone)


def newest_per_key(changes: DataFrame) -> DataFrame:
    """Returns the newest change per key, since a MERGE refuses two."""
    last_first = Window.partitionBy("id").orderBy(F.desc("lsn"))
    return changes.withColumn("nth", F.row_number().over(last_first)).where("nth = 1").drop("nth")
