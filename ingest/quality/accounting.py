"""Audits the accounts: every record from the first in bronze to the last merged one has to be counted once.

Checks read = applied + superseded + quarantined + suppressed for every table, that the merged slices follow each other
without a gap, and that they count as many records as bronze holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from ingest.changelog.accounting import CAUGHT_UP, COUNTS, OUTCOMES, WITHOUT_TABLE


@dataclass(frozen=True)
class Partition:
    """The records of a topic's partition in bronze. `records` may be fewer than the offsets span: compacted topics and
    transactions leave gaps."""

    topic: str
    partition: int
    first: int
    last: int
    records: int


@dataclass(frozen=True)
class Audit:
    """`tables`: table → counts. `problems`: sentences; empty if everything adds up. `merged`: records of bronze that
    the accounts cover. `waiting`: records that no batch has merged yet."""

    tables: dict[str, dict[str, int]]
    partitions: list[Partition]
    merged: int
    waiting: int
    problems: list[str]


def audit(bronze: DataFrame, accounts: DataFrame, first: int = 1, last: int | None = None) -> Audit:
    """Checks `accounts` (`after_batch`, `upto_batch`, `table` and counts) against `bronze` (`batch`, `topic`,
    `partition`, `offset`).

    `first`, `last`: capture batches; merged slices that overlap this range are checked as a whole. Collects a row per
    table, partition and slice.
    """
    selected = accounts.where(F.col("upto_batch") >= first)
    if last is not None:
        selected = selected.where(F.col("after_batch") < last)
    is_correction = F.coalesce(F.col("standing") == CAUGHT_UP, F.lit(False))
    slices = selected.where(~is_correction).groupBy("after_batch", "upto_batch").agg(F.sum("read").alias("read"))
    begin = slices.agg(F.min("after_batch"), F.max("upto_batch")).first()
    after = begin[0] if begin and begin[0] is not None and first > 1 else first - 1
    bronze = bronze.where(F.col("batch") > after)
    if last is not None:
        bronze = bronze.where(F.col("batch") <= max(last, (begin[1] if begin else None) or 0))
    # A correction counts if all slices that it corrects are checked. Collects a row per table.
    ends = (F.col("after_batch") >= after) & (F.col("upto_batch") <= ((begin[1] if begin else None) or 0))
    sums = (
        selected.where(~is_correction | ends)
        .groupBy("table")
        .agg(*(F.sum(c).alias(c) for c in COUNTS))
        .orderBy("table")
        .collect()
    )
    tables = {r["table"]: {c: int(r[c]) for c in COUNTS} for r in sums}
    inside = (F.col("batch") > F.col("after_batch")) & (F.col("batch") <= F.col("upto_batch"))
    held = bronze.join(F.broadcast(slices), inside).groupBy("after_batch", "upto_batch").agg(F.count("*").alias("held"))
    # Collects a row per checked slice.
    rows = slices.join(held, ["after_batch", "upto_batch"], "left").orderBy("after_batch").collect()
    ranges = bronze.groupBy("topic", "partition").agg(
        F.min("offset").alias("first"), F.max("offset").alias("last"), F.count("*").alias("records")
    )
    found = ranges.orderBy("topic", "partition").collect()
    partitions = [Partition(r["topic"], r["partition"], r["first"], r["last"], r["records"]) for r in found]
    merged = sum(r["read"] for r in rows)
    waiting = sum(p.records for p in partitions) - merged
    return Audit(tables, partitions, merged, waiting, [*_imbalances(tables), *_gaps(rows, after)])


def _imbalances(tables: dict[str, dict[str, int]]) -> Iterator[str]:
    for table, counts in tables.items():
        if counts["read"] != sum(counts[name] for name in OUTCOMES):
            parts = " + ".join(f"{counts[name]} {name}" for name in OUTCOMES)
            yield f"{table or WITHOUT_TABLE}: {counts['read']} read are not {parts}"
        if min(counts.values()) < 0:
            yield f"{table or WITHOUT_TABLE}: a count is below zero, so events were counted twice"


def _gaps(slices: Sequence[Row], after: int) -> Iterator[str]:
    for row in slices:
        begin, end, held = row["after_batch"] + 1, row["upto_batch"], row["held"] or 0
        if begin != after + 1:
            yield f"batches {after + 1} to {begin - 1} have no account"
        if row["read"] != held:
            yield f"batches {begin} to {end}: {row['read']} records are accounted for, bronze holds {held}"
        after = end
