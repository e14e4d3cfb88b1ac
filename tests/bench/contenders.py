"""What all who run the race have in common: they take the same records, batch by batch, into a table of their own.

Nothing here or in `workload` needs more than a PySpark of some kind: each contender runs in an environment of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from tests.bench.workload import COLUMNS, IMAGE

ENVELOPE = f"before struct<id bigint>, after struct<{IMAGE}>, op string, source struct<lsn bigint>"


class Contender(Protocol):
    """In the order of the calls."""

    def load(self, snapshot: DataFrame) -> None:
        """A part of the table as it was before; several parts may come."""

    def hand_over(self, batch: DataFrame) -> None:
        """The next batch, to lie ready where the contender reads from."""

    def apply(self) -> None:
        """The oldest batch that lies ready, into the table: the clock runs."""

    def rows(self) -> DataFrame:
        """The table, with the columns of the workload."""


class Waiting:
    """Batches of raw records that lie ready as Parquet files, the oldest first."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._ready: list[str] = []
        self._count = 0

    def add(self, batch: DataFrame) -> None:
        """At the end."""
        path = str(self._folder / f"batch-{self._count}")
        batch.write.parquet(path)
        self._ready.append(path)
        self._count += 1

    def next_path(self) -> str:
        """The folder of the oldest one, which waits no longer."""
        return self._ready.pop(0)

    def next(self) -> DataFrame:
        """The oldest one, which waits no longer."""
        return self._spark.read.parquet(self.next_path())


def parsed(records: DataFrame, *more: str) -> DataFrame:
    """A row for each event: the columns of the table, `lsn`, whether it is `gone`, and `more` columns of the record."""
    event = records.select(*more, F.from_json(F.col("value").cast("string"), ENVELOPE).alias("e"))
    key = F.coalesce("e.after.id", "e.before.id").alias("id")
    image = [F.col(f"e.after.{column}").alias(column) for column in COLUMNS[1:]]
    gone = (F.col("e.op") == "d").alias("gone")
    return event.select(*more, key, *image, F.col("e.source.lsn").alias("lsn"), gone)


def newest(changes: DataFrame) -> DataFrame:
    """Of each key the last change alone: a MERGE refuses two."""
    last_first = Window.partitionBy("id").orderBy(F.desc("lsn"))
    return changes.withColumn("nth", F.row_number().over(last_first)).where("nth = 1").drop("nth")
