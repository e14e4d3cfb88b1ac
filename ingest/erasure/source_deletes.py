"""Deletes that ask: where a table of subjects says `erase_on_delete`, the source's own delete of a row is the request
that its subject be erased. The old life ends with the delete."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from ingest.backfill.source_readers import source_readers
from ingest.batches.group_stats import CHANGE, groups_by_slice
from ingest.batches.rules import Rules
from ingest.batches.schemas import Schemas
from ingest.changelog.change import EVENT_ID
from ingest.changelog.position import has_source_position
from ingest.config import Pipeline
from ingest.erasure.request import Request, entry_of, ledger_keys, written_by_now
from ingest.lakehouse.accounts import Accounts
from ingest.lakehouse.history_facts import HistoryFact, HistoryFacts
from ingest.loop.event_references import key_references
from ingest.loop.table_schemas import TableSchemas
from ingest.merge.key_changes import names_new_key
from ingest.pipeline.composition import rules_of
from ingest.suppression.cutoff import WHOLE_SOURCE, Cutoff
from ingest.suppression.key_file import LedgerKeys
from ingest.suppression.key_references import KEY_HASH, OWN_KEYS, with_key_hashes

_REASON = "deleted at its source"
_KIND = "deletes"
"""What is known of a reader's history: up to where its deletes have been asked for."""


@dataclass(frozen=True)
class AskedByDeletes:
    """`requests`: for the subjects whose deletes have been read since this was asked last. `remember`: to be called
    once the ledger holds the requests; from then on these deletes are not read again."""

    requests: Sequence[Request]
    remember: Callable[[], None] = lambda: None


def asked_by_deletes(spark: SparkSession, pipeline: Pipeline) -> AskedByDeletes:
    """Of what is erased already it holds none any more."""
    tables = {t: s.subject.key for t, s in pipeline.tables.items() if s.erase_on_delete and s.subject is not None}
    if not tables:
        return AskedByDeletes([])
    keys, rules = ledger_keys(pipeline), rules_of(pipeline)
    kinds = {table: kind for kind, table in rules.subjects.roots.items()}
    parts, keeping = _unread(spark, pipeline, rules, repr(sorted(tables.items())))
    if not parts:
        return AskedByDeletes([])
    # A row that goes on under another key was not deleted.
    deleted = (F.col("op") == "d") & ~names_new_key() & F.col("source_table").isin(*tables)
    events = reduce(DataFrame.unionByName, parts).where(deleted)
    now: Cutoff | None = None
    found = []
    for table, row in _deletes(spark, pipeline, keys, events):
        if not row["placed"] or pipeline.tables[table].sequence is not None:
            # Nothing but what is there now tells what came before the delete in other topics.
            now = now or written_by_now(spark, pipeline, topics=False)
        cutoff = now if now is not None else _right_after(row)
        found.append(Request(entry_of(kinds[table], table, row[KEY_HASH], keys, _REASON, cutoff)))

    def remember() -> None:
        for keep in keeping:
            keep()

    return AskedByDeletes(found, remember)


def _unread(
    spark: SparkSession, pipeline: Pipeline, rules: Rules, settings: str
) -> tuple[list[DataFrame], list[Callable[[], None]]]:
    """The events whose deletes have not been asked for, and what remembers that they have. What isn't merged yet is
    read again: only its table may tell its key."""
    history = HistoryFacts(spark, pipeline.layout.known_history)
    parts, keeping = list[DataFrame](), list[Callable[[], None]]()
    for reader in source_readers(spark, pipeline):
        bronze = reader.bronze(spark, rules)
        basis = hashlib.sha256(f"{settings} {rules.view} {bronze.identity}".encode()).hexdigest()[:16]
        known = history.load(reader.writer, _KIND, basis) or HistoryFact(0, {})
        last = bronze.last_batch()
        merged = min(last, Accounts(spark, pipeline.layout.accounts, reader.writer).merged_through())
        if known.through_batch < last:
            parts.append(bronze.between(known.through_batch, last))
        if known.through_batch < merged:
            keeping.append(partial(history.store, reader.writer, _KIND, basis, HistoryFact(merged, {})))
    return parts, keeping


def _deletes(spark: SparkSession, pipeline: Pipeline, keys: LedgerKeys, events: DataFrame) -> Iterator[tuple[str, Row]]:
    """The last delete of each key: its keyed hash, where it stands, and whether its source says so."""
    rules = rules_of(pipeline)
    schemas = Schemas(rules.shredded.columns, rules.times_out_of_range)
    table_schemas = TableSchemas(spark, pipeline.name, pipeline.layout, rules)
    groups = [g for g in groups_by_slice(events, F.lit(0)).get(0, []) if g.kind == CHANGE and g.problem is None]
    schemas.learn(events, groups)
    for table in sorted({g.table for g in groups if g.table is not None}):
        key, types = rules.subjects.keys[table], rules.columns.get(table, {})
        came = [(g, schemas.columns(g, types)) for g in groups if g.table == table]
        # A delete may bring no image: then the record's key tells, by the table's columns.
        mine = [(g, wire if key in {c.name for c in wire} else table_schemas.columns(table)) for g, wire in came]
        named = key_references(events, None, table, (key,), mine, (), rules)
        rows = with_key_hashes(named, keys, keys.newest).select(
            F.explode(OWN_KEYS).alias(KEY_HASH), EVENT_ID, "position"
        )
        at = F.struct("position", EVENT_ID)
        last = rows.groupBy(KEY_HASH).agg(F.max(at).alias("at")).select(KEY_HASH, "at.*")
        for row in (
            last.withColumn("placed", has_source_position(F.col("position"))).orderBy("position").toLocalIterator()
        ):
            yield table, row  # a row per request


def _right_after(delete: Row) -> Cutoff:
    event = delete[EVENT_ID]
    offsets = {event["topic"]: {event["partition"]: event["offset"] + 1}}
    return Cutoff(offsets, {WHOLE_SOURCE: tuple(delete["position"])})
