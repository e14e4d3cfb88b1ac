"""Bronze: one append-only Delta table per source, every record as it came, in capture batches.

How far a source has been read stands in bronze itself: the newest commit tells it to whoever asks without Spark
(`userMetadata`, key `offsets`), and the rows tell it to the next capture. So there is no checkpoint that could be
lost, or disagree with the data.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.envelope import EVENT
from ingest.errors import ChangelogUnusable
from ingest.tables import delta_log

Offsets = dict[str, dict[int, int]]
"""topic → partition → next offset to read."""

COORDINATES = ["topic", "partition", "offset"]
BATCH = "batch"
_SCHEMA = T.StructType([*EVENT.fields, T.StructField(BATCH, T.LongType())])


@dataclass(frozen=True)
class Captured:
    """How far capture has come: the number of its last batch, and where each partition goes on."""

    batch: int = 0
    offsets: Offsets = field(default_factory=dict)


class Bronze:
    """The bronze table of one pipeline."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self.path = path

    def exists(self) -> bool:
        return delta_log.exists(self._spark, self.path)

    def captured(self) -> Captured:
        """Read from the rows: right even after the log has expired or files were rewritten."""
        if not self.exists():
            return Captured()
        ends = (
            self.rows()
            .groupBy("topic", "partition")
            .agg(F.max("offset").alias("last"), F.max(BATCH).alias(BATCH))
            .collect()  # one row per topic partition
        )
        offsets: Offsets = {}
        for row in ends:
            offsets.setdefault(row.topic, {})[row.partition] = row["last"] + 1
        return Captured(max((r[BATCH] for r in ends), default=0), offsets)

    def rows(self) -> DataFrame:
        return delta_log.rows(self._spark, self.path, _SCHEMA)

    def between(self, after: int, upto: int) -> DataFrame:
        """The events of the capture batches `after` < batch ≤ `upto`."""
        return self.rows().where((F.col(BATCH) > after) & (F.col(BATCH) <= upto))

    def unseen(self, events: DataFrame) -> DataFrame:
        """Without the coordinates that are here already, for a source that may hand a record over twice."""
        once = events.dropDuplicates(COORDINATES)
        if not self.exists():
            return once
        return once.join(self.rows().select(*COORDINATES), COORDINATES, "left_anti")

    def append(self, events: DataFrame, upto: Captured) -> None:
        """One commit: the events of batch `upto.batch` and the offsets that follow them."""
        before = self._version() if self.exists() else -1
        delta_log.append(
            events.withColumn(BATCH, F.lit(upto.batch).cast("bigint")).select(*_SCHEMA.names),
            self.path,
            userMetadata=json.dumps({"batch": upto.batch, "offsets": upto.offsets}),
            txnAppId="capture",
            txnVersion=str(upto.batch),
        )
        if self._version() == before:
            # Delta skips a transaction whose number it has seen: somebody else wrote this batch.
            raise ChangelogUnusable(
                f"another capture is writing {self.path}",
                "run one capture per pipeline; this one has stopped without writing",
            )

    def _version(self) -> int:
        jvm = self._spark._jvm
        assert jvm is not None
        log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self._spark._jsparkSession, self.path)
        none = jvm.scala.Option.empty()
        return int(log.update(False, none, none).version())
