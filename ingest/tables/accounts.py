"""The table of accounts: what became of every event, per merged batch and table; so also how far the merge has come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.accounting import COUNTS, Account
from ingest.tables import delta_log, folding
from ingest.tables.contention import COLLISIONS_OF_DELTA, again
from ingest.tables.folded import FoldedLater
from ingest.tables.marks import Progress
from ingest.tables.ready_rows import ready_rows

_SCHEMA = T.StructType(
    [
        T.StructField("pipeline", T.StringType()),
        T.StructField("after_batch", T.LongType()),
        T.StructField("upto_batch", T.LongType()),
        T.StructField("committed_at", T.TimestampType()),
        T.StructField("table", T.StringType()),
        *(T.StructField(c, T.LongType()) for c in COUNTS),
    ]
)


class Accounts:
    """The accounts of one pipeline, in the lakehouse's table of accounts."""

    def __init__(self, spark: SparkSession, path: str, pipeline: str) -> None:
        self._spark = spark
        self._table = delta_log.Table(spark, path)
        self._folded = FoldedLater(self._table)
        self._pipeline = pipeline
        self._mark = f"accounts of {pipeline}"

    def rows(self) -> DataFrame:
        """Of this pipeline alone."""
        return self._table.rows(_SCHEMA).where(F.col("pipeline") == self._pipeline)

    def merged_upto(self) -> int:
        """Returns the last capture batch that silver holds; 0 before the first. The log says it, in the mark that each
        commit of these accounts sets; of accounts from before there were such marks the rows are read."""
        if not self._table.exists():
            return 0
        self._table.version()  # Another process may be merging.
        if (reached := self._table.reached(self._mark)) > 0:
            return reached
        row = self.rows().agg(F.max("upto_batch").alias("upto")).first()
        return int(row["upto"]) if row and row["upto"] is not None else 0

    def add(self, after: int, upto: int, accounts: Sequence[Account]) -> None:
        """The accounts of the capture batches `after` < batch ≤ `upto`, in one commit: the batch is merged.

        Raises Contended where another run has merged as far."""
        now = datetime.now(UTC)
        batch = {"pipeline": self._pipeline, "after_batch": after, "upto_batch": upto, "committed_at": now}
        if not self._table.exists():
            self._table.create(_SCHEMA, {})
        file = ready_rows(self._spark, self._table.path, [batch | asdict(a) for a in accounts], _SCHEMA)
        summary = {"batch": upto, "accounts": [asdict(a) for a in accounts]}
        progress = Progress(self._mark, upto)
        # Those of other pipelines are in this table too.
        again(COLLISIONS_OF_DELTA)(self._table.commit, None, ready=[file], told=summary, progress=progress)

    def fold(self) -> bool:
        """Writes small files together, where it is time to. Whether it was."""
        files = folding.due(self._table.files().values(), together=folding.SELDOM)
        return self._folded.fold(
            files, lambda due: self._table.rows_in(due).coalesce(1).sortWithinPartitions("upto_batch")
        )
