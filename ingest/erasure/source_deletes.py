"""Erasure requests by deletes at the source: for a table of subjects with `erase_on_delete`, the delete of a row
requests the erasure of its subject. The cutoff is right after the delete. In tables whose rows lead to the subject it
is right before the subject is created again or, if it is not, after everything captured: what names a deleted subject
is of the erased life."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from ingest.backfill.source_readers import source_readers
from ingest.batches.group_stats import CHANGE, groups_by_slice
from ingest.batches.rules import Rules
from ingest.changelog.change import EVENT_ID
from ingest.changelog.position import POSITION, has_source_position, right_before_snapshot
from ingest.config import Pipeline
from ingest.erasure.request import ErasureRequest, current_cutoff, ledger_keys, new_entry
from ingest.erasure.table_events import schemas_of
from ingest.lakehouse.accounts import Accounts
from ingest.lakehouse.history_facts import HistoryFact, HistoryFacts
from ingest.loop.suppression.event_references import key_references
from ingest.loop.table_schemas import TableSchemas
from ingest.merge.key_changes import names_new_key
from ingest.pipeline.composition import rules_of
from ingest.suppression.cutoff import WHOLE_SOURCE, Cutoff
from ingest.suppression.key_file import LedgerKeys
from ingest.suppression.key_references import KEY_HASH, OWN_KEYS, with_key_hashes

_REASON = "deleted at its source"
_NOTHING = (-1, 0, 0, 0, 0, 0, 0)
"""A position below all others."""
_KIND = "deletes"
"""The history fact: up to which batch deletes have been processed."""


@dataclass(frozen=True)
class DeleteRequests:
    """`requests`: for the subjects whose deletes were read since the last call. `remember`: call it once the ledger
    holds the requests; from then on these deletes are not read again."""

    requests: Sequence[ErasureRequest]
    remember: Callable[[], None] = lambda: None


def requests_by_deletes(spark: SparkSession, pipeline: Pipeline) -> DeleteRequests:
    """Returns the requests. Erased deletes are no longer in bronze and request nothing."""
    tables = {t: s.subject.key for t, s in pipeline.tables.items() if s.erase_on_delete and s.subject is not None}
    if not tables:
        return DeleteRequests([])
    keys, rules = ledger_keys(pipeline), rules_of(pipeline)
    kinds = {table: kind for kind, table in rules.subjects.roots.items()}
    event_frames, stores = _unprocessed(spark, pipeline, rules, repr(sorted(tables.items())))
    if not event_frames:
        return DeleteRequests([])
    all_events = reduce(DataFrame.unionByName, event_frames).where(F.col("source_table").isin(*tables))
    captured: Cutoff | None = None
    requests = []
    for table, row in _deletes(spark, pipeline, keys, all_events):
        captured = captured or current_cutoff(spark, pipeline, topics=False)
        # Without comparable positions the order across topics is unknown: everything captured is before the cutoff.
        is_ordered = row["placed"] and pipeline.tables[table].sequence is None
        cutoff = cutoff_after(row, table, captured, _with_sequences(pipeline)) if is_ordered else captured
        requests.append(ErasureRequest(new_entry(kinds[table], table, row[KEY_HASH], keys, _REASON, cutoff)))

    def remember() -> None:
        for store in stores:
            store()

    return DeleteRequests(requests, remember)


def _unprocessed(
    spark: SparkSession, pipeline: Pipeline, rules: Rules, settings: str
) -> tuple[list[DataFrame], list[Callable[[], None]]]:
    """Returns the events whose deletes were not processed yet, and functions that record that they were. Batches that
    are not merged yet stay unprocessed, because only their table may tell its key."""
    history = HistoryFacts(spark, pipeline.layout.history_facts)
    event_frames, stores = list[DataFrame](), list[Callable[[], None]]()
    for reader in source_readers(spark, pipeline):
        bronze = reader.bronze(spark, rules)
        basis = hashlib.sha256(f"{settings} {rules.view} {bronze.identity}".encode()).hexdigest()[:16]
        processed = history.load(reader.writer, _KIND, basis) or HistoryFact(0, {})
        last = bronze.last_batch()
        merged = min(last, Accounts(spark, pipeline.layout.accounts, reader.writer).merged_through())
        if processed.through_batch < last:
            event_frames.append(bronze.between(processed.through_batch, last))
        if processed.through_batch < merged:
            stores.append(partial(history.store, reader.writer, _KIND, basis, HistoryFact(merged, {})))
    return event_frames, stores


def _deletes(spark: SparkSession, pipeline: Pipeline, keys: LedgerKeys, events: DataFrame) -> Iterator[tuple[str, Row]]:
    """Yields table and last delete of each key: its keyed hash, its coordinates and position, whether the position is
    the source's, and the position at which the row begins anew (null if it doesn't)."""
    # The delete of a key change is no delete of the row.
    deletes = dict(_rows_of(spark, pipeline, keys, events.where((F.col("op") == "d") & ~names_new_key())))
    if not deletes:
        return
    begins = dict(_rows_of(spark, pipeline, keys, events.where(F.col("op").isin("c", "r"))))
    for table, rows in deletes.items():
        order = F.struct("position", EVENT_ID)
        last = rows.groupBy(KEY_HASH).agg(F.max(order).alias("at")).select(KEY_HASH, "at.*")
        if table in begins:
            began = begins[table].select(KEY_HASH, F.col("position").alias("begins"))
            later = last.join(began, KEY_HASH).where(F.col("begins") > F.col("position"))
            last = last.join(later.groupBy(KEY_HASH).agg(F.min("begins").alias("begins")), KEY_HASH, "left")
        else:
            last = last.withColumn("begins", F.lit(None).cast(POSITION))
        with_placed = last.withColumn("placed", has_source_position(F.col("position")))
        for row in with_placed.orderBy("position").toLocalIterator():
            yield table, row  # a row per request


def _rows_of(
    spark: SparkSession, pipeline: Pipeline, keys: LedgerKeys, events: DataFrame
) -> Iterator[tuple[str, DataFrame]]:
    """Yields each table of these events with the `KEY_HASH` of their keys, `EVENT_ID` and `position`."""
    rules = rules_of(pipeline)
    schemas = schemas_of(rules)
    table_schemas = TableSchemas(spark, pipeline.name, pipeline.layout, rules)
    groups = [g for g in groups_by_slice(events, F.lit(0)).get(0, []) if g.kind == CHANGE and g.problem is None]
    schemas.learn(events, groups)
    for table in sorted({g.table for g in groups if g.table is not None}):
        key, types = rules.subjects.keys[table], rules.columns.get(table, {})
        incoming = [(g, schemas.columns(g, types)) for g in groups if g.table == table]
        # A delete may have no image: then its key is read from the record's key, with the table's columns.
        with_columns = [
            (g, wire if key in {c.name for c in wire} else table_schemas.columns(table)) for g, wire in incoming
        ]
        references = key_references(events, None, table, (key,), with_columns, (), rules)
        hashed = with_key_hashes(references, keys, keys.newest)
        yield table, hashed.select(F.explode(OWN_KEYS).alias(KEY_HASH), EVENT_ID, "position")


def cutoff_after(delete: Row | Mapping[str, Any], table: str, captured: Cutoff, sequences: Collection[str]) -> Cutoff:
    """Returns the cutoff of the delete of a row of `table`. `captured`: the cutoff after everything captured.
    `sequences`: tables that are ordered by a column of their own."""
    event, begins = delete[EVENT_ID], delete["begins"]
    offsets = {event["topic"]: {event["partition"]: event["offset"] + 1}}
    end = captured.positions.get(WHOLE_SOURCE) if begins is None else right_before_snapshot(tuple(begins))
    last = tuple(delete["position"])
    positions = {table: last, WHOLE_SOURCE: last if end is None else max(last, end)}
    # Their numbers can't be compared with positions of the source.
    positions |= {other: captured.positions.get(other, _NOTHING) for other in sequences}
    return Cutoff(offsets, positions)


def _with_sequences(pipeline: Pipeline) -> list[str]:
    return [table for table, settings in pipeline.tables.items() if settings.sequence is not None]
