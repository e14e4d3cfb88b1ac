"""A workload as Parquet files: made once, in its own process, and used by all contenders."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tests.bench.workload import Workload

_PART = 1_000_000
"""Rows of the initial table that are loaded at once."""


@dataclass(frozen=True)
class Prepared:
    """The files of a workload in `folder`: the initial table, the changes per batch, the expected rows."""

    folder: Path

    def make(self, spark: SparkSession, workload: Workload) -> None:
        """Writes all files."""
        for after in range(0, workload.rows, _PART):
            through = min(after + _PART, workload.rows)
            workload.snapshot(spark, after, through).write.parquet(f"{self.folder}/before/{after:012}")
        changes = workload.changes(spark).repartition("batch").sortWithinPartitions("offset")
        changes.write.partitionBy("batch").parquet(f"{self.folder}/changes")
        workload.result(spark).write.parquet(f"{self.folder}/result")

    def before(self, spark: SparkSession) -> Iterator[DataFrame]:
        """Yields the records of the initial snapshot, in parts."""
        for part in sorted((self.folder / "before").iterdir()):
            yield spark.read.parquet(str(part))

    def changes(self, spark: SparkSession, batches: Iterable[int]) -> DataFrame:
        """Returns the records of these batches."""
        return spark.read.parquet(*(f"{self.folder}/changes/batch={number}" for number in batches))

    def result(self, spark: SparkSession) -> DataFrame:
        """Returns the expected rows after all batches."""
        return spark.read.parquet(f"{self.folder}/result")


def main() -> None:
    """Arguments: rows batch batches keys tables folder memory."""
    from ingest.spark.session import running

    rows, batch, batches, keys, tables, folder, memory = sys.argv[1:]
    workload = Workload(int(rows), int(batch), int(batches), keys, tables=int(tables))  # type: ignore[arg-type]
    with running("bench prepared", {"spark.driver.memory": memory}) as spark:
        Prepared(Path(folder)).make(spark, workload)


if __name__ == "__main__":
    main()
