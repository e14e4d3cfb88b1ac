"""Contenders on Delta tables, in the project's own environment: this project, and what is written instead."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from pathlib import Path

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.batches.batch_stats import BatchCounter
from ingest.batches.rules import Rules
from ingest.changelog.envelope import events
from ingest.lakehouse.bronze import Bronze, CaptureState
from ingest.lakehouse.catalog import Catalog
from ingest.loop.merge import Merge
from ingest.names import Lakehouse
from tests.bench.contenders import Waiting, newest, parsed
from tests.bench.workload import COLUMNS

PIPELINE = "bench"
_SIDE_BY_SIDE = 4


class Ingest:
    """This project: bronze to silver."""

    def __init__(self, spark: SparkSession, folder: Path, slice_events: int = 1) -> None:
        self._spark = spark
        lakehouse = Lakehouse(str(folder))
        self._catalog = Catalog(spark, lakehouse.tables)
        # One for both, as in a run that captures and merges.
        self._bronze = Bronze(spark, lakehouse.bronze(PIPELINE))
        self._captured = CaptureState()
        # Late events are what the race is about, not a log that begins anew.
        rules = Rules(stops_at_restart=False)
        self._merge = Merge(spark, PIPELINE, lakehouse, rules, self._bronze, slice_events)

    def load(self, snapshot: DataFrame) -> None:
        self.hand_over(snapshot)
        self.apply()

    def hand_over(self, batch: DataFrame) -> None:
        self._captured = CaptureState(self._captured.batch + 1, {})
        # As a run does that merges what it captures.
        self._bronze.append(events(batch, Rules().naming), self._captured, BatchCounter(self._spark))

    def apply(self) -> None:
        self._merge.step(self._captured.batch)

    def rows(self) -> DataFrame:
        paths = [entry.path for entry in self._catalog.entries(PIPELINE)]
        tables = [self._spark.read.format("delta").load(path).select(*COLUMNS) for path in paths]
        return reduce(DataFrame.unionByName, tables)


class NaiveDelta:
    """What is written instead: parse, the newest of each key in the batch, a MERGE."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._path = str(folder / "table")
        self._waiting = Waiting(spark, folder)

    def load(self, snapshot: DataFrame) -> None:
        """A row each."""
        rows = parsed(snapshot).select(*COLUMNS, "lsn")
        rows.write.format("delta").mode("append").save(self._path)

    def hand_over(self, batch: DataFrame) -> None:
        """As Parquet files."""
        self._waiting.add(batch)

    def apply(self) -> None:
        """One commit."""
        merged(DeltaTable.forPath(self._spark, self._path), parsed(self._waiting.next()))

    def rows(self) -> DataFrame:
        """The table as it is."""
        return self._spark.read.format("delta").load(self._path).select(*COLUMNS)


class NaiveTables:
    """What is written instead for many tables: the batch is parsed and kept once, then a MERGE for each table that is
    in it, some side by side."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._waiting = Waiting(spark, folder)

    def load(self, snapshot: DataFrame) -> None:
        """A table each."""
        rows = self._named(snapshot).persist()
        for name in self._names(rows):
            mine = rows.where(F.col("name") == name).select(*COLUMNS, "lsn")
            mine.coalesce(1).write.format("delta").mode("append").save(self._path(name))
        rows.unpersist()

    def hand_over(self, batch: DataFrame) -> None:
        """As Parquet files."""
        self._waiting.add(batch)

    def apply(self) -> None:
        """One commit for each table."""
        batch = self._named(self._waiting.next()).persist()

        def merge(name: str) -> None:
            table = DeltaTable.forPath(self._spark, self._path(name))
            merged(table, batch.where(F.col("name") == name).drop("name"))

        with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
            list(pool.map(merge, self._names(batch)))
        batch.unpersist()

    def rows(self) -> DataFrame:
        """All tables as one."""
        tables = sorted(self._folder.glob("table-*"))
        return reduce(DataFrame.unionByName, (self._spark.read.format("delta").load(str(t)) for t in tables)).select(
            *COLUMNS
        )

    def _path(self, name: str) -> str:
        return str(self._folder / f"table-{name}")

    @staticmethod
    def _named(records: DataFrame) -> DataFrame:
        return parsed(records.withColumn("name", F.element_at(F.split("topic", r"\."), -1)), "name")

    @staticmethod
    def _names(rows: DataFrame) -> list[str]:
        return [row["name"] for row in rows.select("name").distinct().collect()]


def merged(table: DeltaTable, changes: DataFrame) -> None:
    """The newest change of each key, into the table."""
    values: dict[str, str | Column] = {c: F.col(f"s.{c}") for c in (*COLUMNS, "lsn")}
    (
        table.alias("t")
        .merge(newest(changes).alias("s"), "t.id = s.id")
        .whenMatchedDelete("s.gone AND s.lsn > t.lsn")
        .whenMatchedUpdate("s.lsn > t.lsn", values)
        .whenNotMatchedInsert("NOT s.gone", values)
        .execute()
    )
