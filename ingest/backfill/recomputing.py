"""Recomputes silver from all events that the pipeline has read: as of now, or as of a point of the log."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.backfill.source_readers import SourceReader, source_readers
from ingest.batches.deliveries import EarlierReaders, ReaderEvents
from ingest.changelog.accounting import Account
from ingest.changelog.dialects.registry import as_of_cuts
from ingest.changelog.point import Point
from ingest.config import Pipeline
from ingest.lakehouse.accounts import Accounts, SetAside
from ingest.lakehouse.bronze import Bronze
from ingest.lakehouse.bronze.window import BronzeWindow
from ingest.lakehouse.catalog import Catalog, CatalogEntry
from ingest.lakehouse.schema_history import SchemaHistory
from ingest.loop.merge import Merge
from ingest.loop.set_aside import require_all_merged
from ingest.names import Lakehouse
from ingest.pipeline.composition import rules_of


def recompute_tables(
    spark: SparkSession,
    pipeline: Pipeline,
    into: Lakehouse,
    tables: Sequence[str] = (),
    event_filter: Callable[[DataFrame], Column] | None = None,
    report: Callable[[Sequence[Account]], None] = lambda _: None,
    through_batch: int | None = None,
    history: Collection[str] = (),
    readers: Iterable[tuple[SourceReader, int]] | None = None,
    without: Collection[str] = (),
    slice_ends: Collection[int] = (),
    known_messages: SchemaHistory | None = None,
) -> list[CatalogEntry]:
    """Recomputes tables into the lakehouse `into` and returns their catalog entries.

    The events are those that live silver has merged, or those among them that `event_filter` selects from a reader's
    events. `tables`: only these. `through_batch`: the last batch of the pipeline's bronze. `history`: tables whose row
    versions are recomputed too. `readers`: the readers and their last batches, if not those of live silver. `without`:
    tables to leave out. `slice_ends`: batches of the pipeline's bronze after which a slice has to end.
    `known_messages`: messages about definitions that are known from the start on.

    Raises ChangelogUnusable if tables can't be merged, after all others are finished.
    """
    rules = replace(rules_of(pipeline), only=frozenset(tables) or None, stops_at_restart=False)
    entries = {e.table_schema.table: e for e in Catalog(spark, pipeline.layout.tables).entries(pipeline.name)}
    origins = {table: entry.origin for table, entry in entries.items()}
    rules = replace(rules, history=frozenset(history), origins=origins, without=frozenset(without))
    accepted = {table: entry.accepted for table, entry in entries.items()}
    # What the source's catalog has told is among what was accepted. By now it may tell something else.
    rules = replace(rules, accepted=accepted, source_catalog=None)
    readers_before: list[tuple[SourceReader, ReaderEvents]] = []
    set_aside: dict[str, SetAside] = {}
    for reader, merged in readers_with_events(spark, pipeline) if readers is None else readers:
        reader_rules = replace(rules, columns=reader.columns)
        last = merged if through_batch is None or reader.writer != pipeline.name else through_batch
        events = reader.bronze(spark, reader_rules).between(0, last)
        filters = [f for f in (event_filter and event_filter(events), reader.event_filter) if f is not None]
        selected = reduce(lambda one, other: one & other, filters) if filters else None
        epochs, names, tuning = reader_rules.epochs, reader_rules.names, reader_rules.tuning
        bronze = BronzeWindow(spark, reader.path, selected, last, epochs, names, tuning)
        captured = ReaderEvents(reader.bronze(spark, reader_rules), events, selected)
        earlier = _earlier_readers(pipeline, bronze, readers_before) if reader.from_topics else None
        slice_events, writer = pipeline.batch.merged_at_once, reader.writer
        with closing(
            Merge(spark, pipeline.name, into, reader_rules, bronze, slice_events, writer, earlier, known_messages)
        ) as merge:
            for end in sorted({last, *(end for end in slice_ends if end < last and writer == pipeline.name)}):
                while merge.merged < end or merge.catches_up:  # A slice may hold no selected event.
                    report(merge.step(end))
            set_aside |= merge.set_aside
        if reader.from_topics:
            readers_before.append((reader, captured))
    require_all_merged(pipeline.name, set_aside)
    return Catalog(spark, into.tables).entries(pipeline.name)


def _earlier_readers(
    pipeline: Pipeline, bronze: Bronze, readers_before: Sequence[tuple[SourceReader, ReaderEvents]]
) -> EarlierReaders | None:
    """Returns the events of `readers_before`, by which the merge finds records that were delivered twice."""
    if not readers_before:
        return None
    stream = next((captured for reader, captured in readers_before if reader.writer == pipeline.name), None)
    return EarlierReaders(bronze, stream, [captured for _, captured in readers_before if captured is not stream])


def readers_with_events(spark: SparkSession, pipeline: Pipeline) -> Iterator[tuple[SourceReader, int]]:
    """Yields each reader that has merged events of the pipeline, with the last merged batch of its bronze."""
    for reader in source_readers(spark, pipeline):
        if last := Accounts(spark, pipeline.layout.accounts, reader.writer).merged_through():
            yield reader, last


def committed_by(point: Point, events: DataFrame) -> Column:
    """Returns the filter of the events that their source had committed at `point`, inclusive.

    A time is that of the commit, so it never cuts a transaction. A position cuts none either where the connector's
    dialect has an `as_of_cut`, or an event's own position is that of its commit. Other sources are cut between rows.
    """
    if point.time is not None:
        return F.coalesce(F.coalesce("source_ts", "timestamp") <= F.lit(point.time), F.lit(False))
    at = F.col("position")
    same_epoch = at["epoch"] == point.epoch
    minor = point.minor if point.minor is not None else 2**63 - 1
    limit = F.struct(F.lit(point.major).cast("bigint"), F.lit(minor).cast("bigint"))
    committed = F.struct(at["major"], at["minor"]) <= limit
    for cut in as_of_cuts(point.major):
        aggregates = (column.alias(name) for name, column in cut.aggregates.items())
        found = events.where(cut.applies & same_epoch).agg(*aggregates).first()
        assert found is not None  # an aggregate of no events is a row, too
        committed = F.when(cut.applies, cut.committed(found.asDict())).otherwise(committed)
    return F.coalesce((at["epoch"] < point.epoch) | (same_epoch & committed), F.lit(False))
