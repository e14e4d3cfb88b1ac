"""Those who run the race: each takes the same records, batch by batch, into a table of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ingest.changelog.envelope import events
from ingest.names import Lakehouse
from ingest.run.merge import Merge
from ingest.run.rules import Rules
from ingest.tables.bronze import Bronze, Captured
from tests.bench.workload import COLUMNS, IMAGE, TABLE

PIPELINE = "bench"


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


class Ingest:
    """This project: bronze to silver."""

    def __init__(self, spark: SparkSession, folder: Path, slice_events: int = 1) -> None:
        self._spark = spark
        self._lakehouse = Lakehouse(str(folder))
        self._slice = slice_events
        self._bronze = Bronze(spark, self._lakehouse.bronze(PIPELINE))
        self._captured = Captured()
        self._merge: Merge | None = None

    def load(self, snapshot: DataFrame) -> None:
        self.hand_over(snapshot)
        self.apply()

    def hand_over(self, batch: DataFrame) -> None:
        self._captured = Captured(self._captured.batch + 1, {})
        self._bronze.append(events(batch, Rules().naming), self._captured)

    def apply(self) -> None:
        if self._merge is None:
            bronze = Bronze(self._spark, self._lakehouse.bronze(PIPELINE))
            # Late events are what the race is about, not a log that begins anew.
            rules = Rules(stops_at_restart=False)
            self._merge = Merge(self._spark, PIPELINE, self._lakehouse, rules, bronze, self._slice)
        self._merge.step(self._captured.batch)

    def rows(self) -> DataFrame:
        return self._spark.read.format("delta").load(self._lakehouse.silver(PIPELINE, TABLE)).select(*COLUMNS)


class NaiveDelta:
    """What is written instead: parse, the newest of each key in the batch, a MERGE."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._path = str(folder / "table")
        self._batches: list[str] = []
        self._folder = folder

    def load(self, snapshot: DataFrame) -> None:
        newest = self._parsed(snapshot).select(*COLUMNS, "lsn")
        newest.write.format("delta").mode("append").save(self._path)

    def hand_over(self, batch: DataFrame) -> None:
        path = str(self._folder / f"batch-{len(list(self._folder.glob('batch-*')))}")
        batch.write.parquet(path)
        self._batches.append(path)

    def apply(self) -> None:
        parsed = self._parsed(self._spark.read.parquet(self._batches.pop(0)))
        latest = Window.partitionBy("id").orderBy(F.desc("lsn"))
        changes = parsed.withColumn("nth", F.row_number().over(latest)).where("nth = 1").drop("nth")
        values = {c: F.col(f"s.{c}") for c in (*COLUMNS, "lsn")}
        (
            DeltaTable.forPath(self._spark, self._path)
            .alias("t")
            .merge(changes.alias("s"), "t.id = s.id")
            .whenMatchedDelete("s.op = 'd' AND s.lsn > t.lsn")
            .whenMatchedUpdate("s.lsn > t.lsn", values)
            .whenNotMatchedInsert("s.op <> 'd'", values)
            .execute()
        )

    def rows(self) -> DataFrame:
        return self._spark.read.format("delta").load(self._path).select(*COLUMNS)

    @staticmethod
    def _parsed(records: DataFrame) -> DataFrame:
        envelope = f"before struct<id: bigint>, after struct<{IMAGE.replace(' ', ': ').replace(',:', ',')}>"
        value = F.from_json(F.col("value").cast("string"), f"{envelope}, op string, source struct<lsn: bigint>")
        opened = records.select(value.alias("v"))
        id_ = F.coalesce("v.after.id", "v.before.id").alias("id")
        rest = [F.col(f"v.after.{c}").alias(c) for c in COLUMNS[1:]]
        return opened.select(id_, *rest, F.col("v.op").alias("op"), F.col("v.source.lsn").alias("lsn"))
