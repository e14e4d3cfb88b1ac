"""What may still write an erased life after it was removed: records that wait in the topics, and those that were merged
since."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.backfill.source_readers import source_readers
from ingest.config import Pipeline
from ingest.lakehouse.accounts import Accounts
from ingest.pipeline.composition import rules_of
from ingest.suppression.cutoff import Cutoff


def uncaptured_partitions(spark: SparkSession, pipeline: Pipeline, cutoff: Cutoff) -> list[str]:
    """Returns the topic partitions of which not every record up to the cutoff has been captured, as text."""
    rules = rules_of(pipeline)
    captured: dict[tuple[str, int], int] = {}
    for reader in source_readers(spark, pipeline):
        if reader.from_topics:
            for topic, partitions in reader.bronze(spark, rules).captured().offsets.items():
                for partition, offset in partitions.items():
                    captured[topic, partition] = max(offset, captured.get((topic, partition), 0))
    return [
        f"{topic}, partition {partition}"
        for topic, ends in sorted(cutoff.offsets.items())
        for partition, end in sorted(ends.items())
        if captured.get((topic, partition), 0) < end
    ]


def last_suppressed_at(spark: SparkSession, pipeline: Pipeline) -> datetime | None:
    """Returns when events of erased lives were last met and suppressed; None if never. They are in bronze since."""
    met = (F.col("suppressed") > 0) & F.col("table").isin(list(rules_of(pipeline).subjects.tables))
    writers = [reader.writer for reader in source_readers(spark, pipeline)]
    accounts = [Accounts(spark, pipeline.layout.accounts, writer).rows().where(met) for writer in writers]
    newest = F.max(F.unix_micros("committed_at"))
    (last,) = reduce(DataFrame.unionByName, accounts).agg(newest).first() or (None,)
    return None if last is None else datetime.fromtimestamp(last / 1e6, UTC)
