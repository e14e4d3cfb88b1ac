"""Contenders on Delta tables, in the project's environment: ingest, and hand-written MERGE jobs."""

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
from tests.bench.contenders import BatchQueue, newest_per_key, parse
from tests.bench.workload import COLUMNS

PIPELINE = "bench"
_PARALLEL_MERGES = 4


class Ingest:
    """ingest, from bronze to silver."""

    def __init__(self, spark: SparkSession, folder: Path, slice_events: int = 1) -> None:
        self._spark = spark
        lakehouse = Lakehouse(str(folder))
        self._catalog = Catalog(spark, lakehouse.tables)
        # One object for both, as in a run that captures and merges.
        self._bronze = Bronze(spark, lakehouse.bronze(PIPELINE))
        self._captured = CaptureState()
        # The workload has late events on purpose.
        rules = Rules(stops_at_restart=False)
        self._merge = Merge(spark, PIPELINE, lakehouse, rules, self._bronze, slice_events)

    def load(self, snapshot: DataFrame) -> None:
        self.enqueue(snapshot)
        self.apply()

    def enqueue(self, batch: DataFrame) -> None:
        self._captured = CaptureState(self._captured.batch + 1, {})
        # As in a run that merges what it captures.
        self._bronze.append(events(batch, Rules().naming), self._captured, BatchCounter(self._spark))

    def apply(self) -> None:
        self._merge.step(self._captured.batch)

    def rows(self) -> DataFrame:
        paths = [entry.path for entry in self._catalog.entries(PIPELINE)]
        tables = [self._spark.read.format("delta").load(path).select(*COLUMNS) for path in paths]
        return reduce(DataFrame.unionByName, tables)


class NaiveDelta:
    """A hand-written job: parse, take the newest per key of the batch, MERGE."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._path = str(folder / "table")
        self._queue = BatchQueue(spark, folder)

    def load(self, snapshot: DataFrame) -> None:
        """Appends a row per record."""
        rows = parse(snapshot).select(*COLUMNS, "lsn")
        rows.write.format("delta").mode("append").save(self._path)

    def enqueue(self, batch: DataFrame) -> None:
        """Writes Parquet files."""
        self._queue.add(batch)

    def apply(self) -> None:
        """Merges in one commit."""
        merged(DeltaTable.forPath(self._spark, self._path), parse(self._queue.next()))

    def rows(self) -> DataFrame:
        """Returns the table."""
        return self._spark.read.format("delta").load(self._path).select(*COLUMNS)


class NaiveTables:
    """A hand-written job for many tables: parse and cache the batch once, then run a MERGE per table of the batch, some
    in parallel."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._queue = BatchQueue(spark, folder)

    def load(self, snapshot: DataFrame) -> None:
        """Writes a Delta table per source table."""
        rows = self._named(snapshot).persist()
        for name in self._names(rows):
            rows_of_table = rows.where(F.col("name") == name).select(*COLUMNS, "lsn")
            rows_of_table.coalesce(1).write.format("delta").mode("append").save(self._path(name))
        rows.unpersist()

    def enqueue(self, batch: DataFrame) -> None:
        """Writes Parquet files."""
        self._queue.add(batch)

    def apply(self) -> None:
        """Merges in one commit per table."""
        batch = self._named(self._queue.next()).persist()

        def merge(name: str) -> None:
            table = DeltaTable.forPath(self._spark, self._path(name))
            merged(table, batch.where(F.col("name") == name).drop("name"))

        with ThreadPoolExecutor(_PARALLEL_MERGES) as pool:
            list(pool.map(merge, self._names(batch)))
        batch.unpersist()

    def rows(self) -> DataFrame:
        """Returns the union of all tables."""
        tables = sorted(self._folder.glob("table-*"))
        return reduce(DataFrame.unionByName, (self._spark.read.format("delta").load(str(t)) for t in tables)).select(
            *COLUMNS
        )

    def _path(self, name: str) -> str:
        return str(self._folder / f"table-{name}")

    @staticmethod
    def _named(records: DataFrame) -> DataFrame:
        return parse(records.withColumn("name", F.element_at(F.split("topic", r"\."), -1)), "name")

    @staticmethod
    def _names(rows: DataFrame) -> list[str]:
        return [row["name"] for row in rows.select("name").distinct().collect()]


def merged(table: DeltaTable, changes: DataFrame) -> None:
    """Merges the newest change per key into the table."""
    values: dict[str, str | Column] = {c: F.col(f"s.{c}") for c in (*COLUMNS, "lsn")}
    (
        table.alias("t")
        .merge(newest_per_key(changes).alias("s"), "t.id = s.id")
        .whenMatchedDelete("s.gone AND s.lsn > t.lsn")
        .whenMatchedUpdate("s.lsn > t.lsn", values)
        .whenNotMatchedInsert("NOT s.gone", values)
        .execute()
    )
