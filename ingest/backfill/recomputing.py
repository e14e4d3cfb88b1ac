"""Recomputes silver from all events that the pipeline has read: as of now, or as of a point of the log."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.backfill.source_readers import SourceReader, source_readers
from ingest.batches.deliveries import Captured, EarlierReaders
from ingest.changelog.accounting import Account
from ingest.changelog.point import Point
from ingest.changelog.position import place
from ingest.config import Pipeline
from ingest.lakehouse.accounts import Accounts, SetAside
from ingest.lakehouse.bronze import Bronze
from ingest.lakehouse.bronze_window import BronzeWindow
from ingest.lakehouse.catalog import Catalog, CatalogEntry
from ingest.loop.merge import Merge
from ingest.loop.set_aside import require_all_merged
from ingest.names import Lakehouse
from ingest.pipeline.composition import rules_of


def recompute_tables(
    spark: SparkSession,
    pipeline: Pipeline,
    into: Lakehouse,
    tables: Sequence[str] = (),
    chosen: Callable[[DataFrame], Column] | None = None,
    report: Callable[[Sequence[Account]], None] = lambda _: None,
    upto: int | None = None,
    history: Collection[str] = (),
    read: Iterable[tuple[SourceReader, int]] | None = None,
    without: Collection[str] = (),
    stops: Collection[int] = (),
) -> list[CatalogEntry]:
    """Recomputes tables into the lakehouse `into` and returns their catalog entries.

    The events are those that live silver has merged, or those among them that the filter `chosen` selects from a
    reader's events. `tables`: only these. `upto`: the last batch of the pipeline's bronze. `history`: tables whose row
    versions are recomputed too. `read`: the readers and their last batches, if not those of live silver. `without`:
    tables to leave out. `stops`: batches of the pipeline's bronze after which a slice has to end.

    Raises ChangelogUnusable if tables can't be merged, after all others are finished.
    """
    rules = replace(rules_of(pipeline), only=frozenset(tables) or None, stops_at_restart=False)
    origins = {e.table_schema.table: e.origin for e in Catalog(spark, pipeline.layout.tables).entries(pipeline.name)}
    rules = replace(rules, history=frozenset(history), origins=origins, without=frozenset(without))
    every: list[tuple[SourceReader, Captured]] = []
    aside: dict[str, SetAside] = {}
    for reader, merged in histories(spark, pipeline) if read is None else read:
        known = replace(rules, columns=reader.columns)
        last = merged if upto is None or reader.writer != pipeline.name else upto
        events = reader.bronze(spark, known).between(0, last)
        both = [one for one in (chosen and chosen(events), reader.chosen) if one is not None]
        mine = reduce(lambda one, other: one & other, both) if both else None
        bronze = BronzeWindow(spark, reader.path, mine, last, known.epochs, known.names)
        captured = Captured(reader.bronze(spark, known), events, mine)
        elsewhere = _elsewhere(pipeline, bronze, every) if reader.from_topics else None
        most, writer = pipeline.batch.merged_at_once, reader.writer
        with closing(Merge(spark, pipeline.name, into, known, bronze, most, writer, elsewhere)) as merge:
            for end in sorted({last, *(stop for stop in stops if stop < last and writer == pipeline.name)}):
                while merge.merged < end or merge.catches_up:  # A slice may hold nothing of what was chosen.
                    report(merge.step(end))
            aside |= merge.set_aside
        if reader.from_topics:
            every.append((reader, captured))
    require_all_merged(pipeline.name, aside)
    return Catalog(spark, into.tables).entries(pipeline.name)


def _elsewhere(
    pipeline: Pipeline, bronze: Bronze, every: Sequence[tuple[SourceReader, Captured]]
) -> EarlierReaders | None:
    """Returns the events of the earlier readers in `every`, by which the merge finds records that were delivered
    twice."""
    if not every:
        return None
    stream = next((captured for reader, captured in every if reader.writer == pipeline.name), None)
    return EarlierReaders(bronze, stream, [captured for _, captured in every if captured is not stream])


def histories(spark: SparkSession, pipeline: Pipeline) -> Iterator[tuple[SourceReader, int]]:
    """Yields each reader that has merged events of the pipeline, with the last merged batch of its bronze."""
    for reader in source_readers(spark, pipeline):
        if upto := Accounts(spark, pipeline.layout.accounts, reader.writer).merged_through():
            yield reader, upto


def committed_by(point: Point, events: DataFrame) -> Column:
    """Returns the filter of the events that their source had committed at `point`, inclusive.

    A time is that of the commit, so it never cuts a transaction. A Postgres event carries the position of the commit
    before its own transaction; the transaction was committed by `point` once a later event carries a commit at or
    before it. Positions of other sources are those of the commits, or of single rows (MySQL).
    """
    if point.time is not None:
        return F.coalesce(F.coalesce("source_ts", "timestamp") <= F.lit(point.time), F.lit(False))
    at, before = place(F.col("position")), F.col("progress.major")
    tells = before.isNotNull() & (at["minor"] == 0)
    here = at["epoch"] == point.epoch
    told = events.where(tells & here).agg(
        F.max(F.when(before <= point.major, before)).alias("commit"),
        F.max_by(at["major"], F.struct(before, at["major"])).alias("last"),
        F.max(before).alias("newest"),
    )
    row = told.first()
    commit = -1 if row is None or row["commit"] is None else int(row["commit"])
    if row is not None and row["last"] is not None and row["newest"] == commit < point.major >= row["last"]:
        commit += 1  # The last transaction ends before the point, and no event follows it.
    numbers = F.struct(at["major"], at["minor"])
    minor = point.minor if point.minor is not None else 2**63 - 1
    by_position = numbers <= F.struct(F.lit(point.major).cast("bigint"), F.lit(minor).cast("bigint"))
    inside = F.when(tells, before < commit).otherwise(by_position)
    return F.coalesce((at["epoch"] < point.epoch) | (here & inside), F.lit(False))
