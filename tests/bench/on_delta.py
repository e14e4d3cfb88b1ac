"""Contenders on Delta tables, in the project's own environment: this project, and what is written instead."""

from __future__ import annotations

from pathlib import Path

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.changelog.envelope import events
from ingest.names import Lakehouse
from ingest.run.merge import Merge
from ingest.run.rules import Rules
from ingest.tables.bronze import Bronze, Captured
from tests.bench.contenders import Waiting, newest, parsed
from tests.bench.workload import COLUMNS, TABLE

PIPELINE = "bench"


class Ingest:
    """This project: bronze to silver."""

    def __init__(self, spark: SparkSession, folder: Path, slice_events: int = 1) -> None:
        self._spark = spark
        lakehouse = Lakehouse(str(folder))
        self._silver = lakehouse.silver(PIPELINE, TABLE)
        # One for both, as in a run that captures and merges.
        self._bronze = Bronze(spark, lakehouse.bronze(PIPELINE))
        self._captured = Captured()
        # Late events are what the race is about, not a log that begins anew.
        rules = Rules(stops_at_restart=False)
        self._merge = Merge(spark, PIPELINE, lakehouse, rules, self._bronze, slice_events)

    def load(self, snapshot: DataFrame) -> None:
        self.hand_over(snapshot)
        self.apply()

    def hand_over(self, batch: DataFrame) -> None:
        self._captured = Captured(self._captured.batch + 1, {})
        self._bronze.append(events(batch, Rules().naming), self._captured)

    def apply(self) -> None:
        self._merge.step(self._captured.batch)

    def rows(self) -> DataFrame:
        return self._spark.read.format("delta").load(self._silver).select(*COLUMNS)


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
        values: dict[str, str | Column] = {c: F.col(f"s.{c}") for c in (*COLUMNS, "lsn")}
        (
            DeltaTable.forPath(self._spark, self._path)
            .alias("t")
            .merge(newest(parsed(self._waiting.next())).alias("s"), "t.id = s.id")
            .whenMatchedDelete("s.gone AND s.lsn > t.lsn")
            .whenMatchedUpdate("s.lsn > t.lsn", values)
            .whenNotMatchedInsert("NOT s.gone", values)
            .execute()
        )

    def rows(self) -> DataFrame:
        """The table as it is."""
        return self._spark.read.format("delta").load(self._path).select(*COLUMNS)
