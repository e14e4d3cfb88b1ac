"""A workload as Parquet files: made once, in a process of its own, and raced on by all."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tests.bench.workload import Workload

_PART = 1_000_000
"""So many rows of the table before are loaded at once."""


@dataclass(frozen=True)
class Prepared:
    """What `folder` holds of a workload: the table before, the changes by batch, the rows that must be there after."""

    folder: Path

    def make(self, spark: SparkSession, workload: Workload) -> None:
        """Writes all of it."""
        for after in range(0, workload.rows, _PART):
            upto = min(after + _PART, workload.rows)
            workload.snapshot(spark, after, upto).write.parquet(f"{self.folder}/before/{after:012}")
        changes = workload.changes(spark).repartition("batch").sortWithinPartitions("offset")
        changes.write.partitionBy("batch").parquet(f"{self.folder}/changes")
        workload.result(spark).write.parquet(f"{self.folder}/result")

    def before(self, spark: SparkSession) -> Iterator[DataFrame]:
        """Records that read the table, some at a time."""
        for part in sorted((self.folder / "before").iterdir()):
            yield spark.read.parquet(str(part))

    def changes(self, spark: SparkSession, batches: Iterable[int]) -> DataFrame:
        """The records of these batches."""
        return spark.read.parquet(*(f"{self.folder}/changes/batch={number}" for number in batches))

    def result(self, spark: SparkSession) -> DataFrame:
        """The rows that are there after all batches."""
        return spark.read.parquet(f"{self.folder}/result")


def main() -> None:
    """`rows batch batches keys tables folder memory`, as `make bench` calls it."""
    from ingest.spark.session import running

    rows, batch, batches, keys, tables, folder, memory = sys.argv[1:]
    workload = Workload(int(rows), int(batch), int(batches), keys, tables=int(tables))  # type: ignore[arg-type]
    with running("bench prepared", {"spark.driver.memory": memory}) as spark:
        Prepared(Path(folder)).make(spark, workload)


if __name__ == "__main__":
    main()
