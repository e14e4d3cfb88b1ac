"""The messages of the source's triggers about definitions of tables, as they were captured (`system/schemas`), and what
became of changes that were not just applied (`system/schema-outcomes`).

A row per message: its table, its position, the content, and the source's time of the command. They hold names, types
and defaults of columns, and nothing of a row. A slice that is merged again adds its messages again: equal ones count
once.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.ddl_message import ddl_content
from ingest.changelog.origin import ORIGIN, UNNAMED
from ingest.changelog.position import POSITION
from ingest.delta import delta_table
from ingest.delta.conflict_retry import DELTA_CONFLICTS, retry_on_conflict
from ingest.errors import ChangelogUnusable
from ingest.evolution.ddl_version import ddl_version
from ingest.evolution.definition import Place, Version
from ingest.evolution.schema_policy import Outcome
from ingest.spark.local_rows import local_rows

_SCHEMA = T.StructType(
    [
        T.StructField("pipeline", T.StringType()),
        T.StructField("table", T.StringType()),
        T.StructField("position", T.ArrayType(T.LongType())),
        T.StructField("source_ts", T.TimestampType()),
        T.StructField("content", T.StringType()),
        T.StructField(ORIGIN, T.StringType()),
    ]
)

_OUTCOMES_SCHEMA = T.StructType(
    [
        T.StructField("pipeline", T.StringType()),
        T.StructField("table", T.StringType()),
        T.StructField("position", T.ArrayType(T.LongType())),
        T.StructField("kind", T.StringType()),
        T.StructField("column", T.StringType()),
        T.StructField("outcome", T.StringType()),
        T.StructField("text", T.StringType()),
    ]
)


@dataclass(frozen=True)
class ToldVersion:
    """A message about a table's definition. `at`: the source's time. `version`: None if the message tells none; then
    `fault` says why, and what to do. `origin`: the server and database; empty if not known."""

    since: Place
    at: datetime | None
    version: Version | None = None
    fault: ChangelogUnusable | None = None
    origin: str = UNNAMED


class SchemaHistory:
    """The messages about definitions that one pipeline has captured."""

    def __init__(self, spark: SparkSession, path: str, pipeline: str) -> None:
        self._spark = spark
        self._table = delta_table.Table(spark, path)
        self._pipeline = pipeline

    def add(self, events: DataFrame) -> None:
        """Appends the messages about definitions among the events, which are rows of bronze."""
        messages = events.where(F.col("op") == "m").withColumn("content", ddl_content(F.col("value")))
        position = F.array(*(F.col(f"position.{name}").cast("bigint") for name in POSITION.names))
        rows = messages.where(F.col("content").isNotNull()).select(
            F.lit(self._pipeline).alias("pipeline"),
            F.col("source_table").alias("table"),
            position.alias("position"),
            "source_ts",
            "content",
            ORIGIN,
        )
        is_older = self._table.exists() and ORIGIN not in self._table.rows().columns
        columns = _SCHEMA if is_older else None
        self._table.commit(rows, properties=delta_table.NO_STATISTICS, columns=columns, is_small=True)

    def exists(self) -> bool:
        """Returns True if any message was captured."""
        return self._table.exists()

    def all_told(self) -> dict[str, list[ToldVersion]]:
        """Returns the messages about all tables, by table and position."""
        rows = self._rows().select("table", "position", "source_ts", "content", ORIGIN).distinct()
        found: dict[str, list[ToldVersion]] = {}
        for row in rows.orderBy("position", "content").collect():  # a row per command that changed a table
            told = _told(row["content"], tuple(row["position"]), row["source_ts"], row[ORIGIN] or UNNAMED)
            found.setdefault(row["table"], []).append(told)
        return found

    def _rows(self) -> DataFrame:
        rows = self._table.rows() if self._table.exists() else self._spark.createDataFrame([], _SCHEMA)
        if ORIGIN not in rows.columns:
            rows = rows.withColumn(ORIGIN, F.lit(UNNAMED))
        return rows.where(F.col("pipeline") == self._pipeline)


@dataclass(frozen=True)
class RecordedOutcome:
    """What became of a change. `position`: where events first showed it. `column`: empty if it is about the table.
    `text`: the change in a few words."""

    position: Place
    kind: str
    column: str
    outcome: Outcome
    text: str


class SchemaOutcomes:
    """The changes of one pipeline's tables that were not just applied."""

    def __init__(self, spark: SparkSession, path: str, pipeline: str) -> None:
        self._spark = spark
        self._table = delta_table.Table(spark, path)
        self._pipeline = pipeline
        # Tables are merged in parallel; two first appends would both create the table.
        self._commit_lock = threading.Lock()

    def add(self, table: str, found: Sequence[RecordedOutcome]) -> None:
        """Appends outcomes of one table."""
        rows = [asdict(one) | {"pipeline": self._pipeline, "table": table} for one in found]
        frame = local_rows(self._spark, rows, _OUTCOMES_SCHEMA)
        with self._commit_lock:
            retry_on_conflict(DELTA_CONFLICTS)(self._table.commit, frame, properties=delta_table.NO_STATISTICS)

    def of_table(self, table: str) -> list[RecordedOutcome]:
        """Returns the outcomes of a table, by position, each once."""
        if not self._table.exists():
            return []
        rows = self._table.rows().where((F.col("pipeline") == self._pipeline) & (F.col("table") == table))
        found = rows.select("position", "kind", "column", "outcome", "text").distinct().collect()  # a row per change
        outcomes = (RecordedOutcome(tuple(r[0]), r[1], r[2], Outcome(r[3]), r[4]) for r in found)
        return sorted(outcomes, key=lambda one: (one.position, one.kind, one.column))


def _told(content: str, since: Place, at: datetime | None, origin: str) -> ToldVersion:
    moment = None if at is None else at.astimezone(UTC)
    try:
        return ToldVersion(since, moment, ddl_version(content, since)[1], origin=origin)
    except ChangelogUnusable as fault:
        return ToldVersion(since, moment, fault=fault, origin=origin)
