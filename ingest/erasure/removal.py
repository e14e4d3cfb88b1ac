"""Removes what was requested to be erased, place by place, for all requests at once.

Every step searches for what exists now, by the keys and cutoffs in the ledger, and removes it. So a killed run is
completed by the next one, and an old event that is captured again is removed again. What later steps need to find
anything is removed last; old versions of tables are removed once no reader can be using them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property, reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.backfill.source_readers import SourceReader, source_readers
from ingest.changelog.change import EVENT_ID, POSITION_COLUMN
from ingest.config import Pipeline
from ingest.erasure.archive_erasing import erase_from_archive, require_archive_read
from ingest.erasure.compacted_topics import CompactedTopics
from ingest.erasure.erased_events import READER, ErasedEvents
from ingest.erasure.masking import Masking
from ingest.erasure.places import (
    ARCHIVE,
    BRONZE,
    DATA_KEYS,
    DELTA_PLACES,
    OLD_FILES,
    QUARANTINE,
    TABLES,
    TOMBSTONES,
    TOPICS,
)
from ingest.errors import ChangelogUnusable
from ingest.lakehouse.accounts import Accounts
from ingest.lakehouse.bronze import COORDINATES, Bronze
from ingest.lakehouse.catalog import CatalogEntry
from ingest.lakehouse.quarantine import Quarantine
from ingest.loop.event_references import TOMBSTONE_KEYS
from ingest.loop.late_children import LateChildren, event_columns
from ingest.loop.table_schemas import TableSchemas
from ingest.merge.actions import TOMBSTONE_KEY
from ingest.pipeline.composition import rules_of
from ingest.pipeline.shredding import shred
from ingest.reconcile import TableState, table_state
from ingest.spark.checkpoints import checkpoint, checkpoint_scope
from ingest.suppression.before_cutoff import BEFORE_CUTOFF, with_cutoff_flags
from ingest.suppression.cutoff import Cutoff
from ingest.suppression.key_file import LedgerKeys, read_keys
from ingest.suppression.ledger import REQUESTED, STATE, Ledger, LedgerEntry, cutoffs, last_state_number
from ingest.upkeep.old_files import event_folders, table_folders, without_old_files

REMOVED = "removed"


def subject_tables_set_aside(spark: SparkSession, pipeline: Pipeline) -> dict[str, int]:
    """Returns the subject tables that are set aside, each with the last batch that it holds. The subjects of later
    events are unknown."""
    set_aside = Accounts(spark, pipeline.layout.accounts, pipeline.name).set_aside()
    return {t: set_aside[t].after for t in rules_of(pipeline).subjects.tables if t in set_aside}


OnPlaceDone = Callable[[str, Mapping[str, int]], None]
"""Called after each place with the counts of what was removed there."""


@dataclass(frozen=True)
class RemovalOutcome:
    """`requests`: number of requests. `taken`: place → counts of what was removed in this run. `remain_until`: when the
    old files may be removed; None if they have been."""

    requests: int = 0
    taken: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    remain_until: datetime | None = None


class Removal:
    """The removal of one pipeline."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, keep_hours: int | None = None) -> None:
        """`keep_hours`: how long old files are kept, in place of the pipeline's setting."""
        self._spark = spark
        self._pipeline = pipeline
        self._rules = rules_of(pipeline)
        configured = pipeline.privacy.keep_old_files_hours if pipeline.privacy else 0
        self._keep_hours = configured if keep_hours is None else keep_hours
        self._ledger = Ledger(spark, pipeline.layout.ledger, pipeline.name)
        self._table_schemas = TableSchemas(spark, pipeline.name, pipeline.layout, self._rules)
        self._readers = source_readers(spark, pipeline)
        self._quarantine = Quarantine(spark, pipeline.layout.quarantine, pipeline.name)
        self._table_states: dict[str, TableState] = {}
        self._set_aside = subject_tables_set_aside(spark, pipeline)

    def run(self, on_place_done: OnPlaceDone = lambda *_: None) -> RemovalOutcome:
        """Removes everything of every request that can be removed by now."""
        entries = list(self._ledger.entries())
        requests = [e for e in entries if e.kind == REQUESTED]
        if not requests:
            return RemovalOutcome()
        taken: dict[str, Mapping[str, int]] = {}
        destroyed_keys = shred(self._spark, self._pipeline)
        if destroyed_keys is not None:
            taken[DATA_KEYS] = {"keys": destroyed_keys}
            self._record(entries, DATA_KEYS, requests[-1].number, taken[DATA_KEYS])
            on_place_done(DATA_KEYS, taken[DATA_KEYS])
        for place, counts in self._steps(cutoffs(requests)):
            taken[place] = counts
            self._record(entries, place, requests[-1].number, counts)
            on_place_done(place, counts)
        remain_until = self._remove_old_files(requests[-1].number)
        # Steps that depend on other systems come last.
        if self._pipeline.writes_tombstones:
            taken[TOPICS] = self._write_topic_tombstones(requests[-1].number)
            on_place_done(TOPICS, taken[TOPICS])
        if self._pipeline.archive is not None:
            taken[ARCHIVE] = self._erase_archive(entries, requests[-1].number)
            on_place_done(ARCHIVE, taken[ARCHIVE])
        if self._set_aside:
            raise ChangelogUnusable(
                f"pipeline {self._pipeline.name}: {', '.join(self._set_aside)} is set aside, so the subjects of its "
                "waiting events are unknown; everything else was removed",
                "`ingest status` says why it is set aside: mend it, `ingest run`, then the same command again",
            )
        return RemovalOutcome(len(requests), taken, remain_until)

    def _steps(self, cutoffs_by_request: Mapping[str, Cutoff]) -> Iterator[tuple[str, dict[str, int]]]:
        """Removes place by place and yields the counts. The order matters: a later step may need what an earlier one
        has found."""
        search = ErasedEvents(
            self._spark, self._pipeline, self._rules, self._table_schemas, self._table_state, self._ledger, self._keys
        )
        erased = search.find(self._readers)
        coordinates = erased.select(*(F.col(EVENT_ID)[c].alias(c) for c in COORDINATES), "request", READER)
        unique_events = (
            coordinates.groupBy(*COORDINATES, READER).agg(F.min("request").alias("request")).localCheckpoint()
        )
        counts = {r[READER]: r["count"] for r in unique_events.groupBy(READER).count().collect()}  # a row per reader
        events = sum(counts.values())
        yield TOMBSTONES, {"files": self._remove_tombstones(erased, cutoffs_by_request)}
        yield QUARANTINE, {"files": self._quarantine.remove(unique_events) if events else 0}
        yield TABLES, self._remove_rows(cutoffs_by_request)
        yield BRONZE, {"events": events, "files": self._empty_bronze(search, unique_events, counts)}
        search.mark_searched()

    def _empty_bronze(self, search: ErasedEvents, events: DataFrame, reader_names: Collection[str]) -> int:
        """Empties these events in bronze and returns the number of files that were rewritten."""
        affected = [reader for reader in self._readers if reader.writer in reader_names]
        return sum(
            self._bronze(source_reader).empty(
                events.where(F.col(READER) == source_reader.writer), search.spans(source_reader.writer)
            )
            for source_reader in affected
        )

    def _bronze(self, reader: SourceReader) -> Bronze:
        return reader.bronze(self._spark, self._rules)

    def _remove_tombstones(self, erased: DataFrame, cutoffs_by_request: Mapping[str, Cutoff]) -> int:
        """Removes the tombstones of erased deletes and returns the number of rewritten files. Tombstones after the
        cutoff stay."""
        files = 0
        for entry in self._subject_tables:
            tombstones = self._table_state(entry.table_schema.table).tombstones
            if not tombstones.exists():
                continue
            of_table = erased.where(F.col("table") == entry.table_schema.table)
            keys = of_table.select("request", F.explode(TOMBSTONE_KEYS).alias(TOMBSTONE_KEY)).distinct()
            rows = tombstones.rows().select("*", *event_columns(entry)).join(F.broadcast(keys), TOMBSTONE_KEY)
            to_remove = (
                with_cutoff_flags(rows, cutoffs_by_request, entry.table_schema.table)
                .where(BEFORE_CUTOFF)
                .select(TOMBSTONE_KEY, POSITION_COLUMN)
                .distinct()
            )
            files += tombstones.remove(to_remove)
        return files

    def _remove_rows(self, cutoffs_by_request: Mapping[str, Cutoff]) -> dict[str, int]:
        table_schemas, masks = [entry.table_schema for entry in self._subject_tables], self._rules.masks
        masking = Masking(self._spark, self._pipeline, self._rules, table_schemas, cutoffs_by_request)
        late_children = LateChildren(
            self._ledger, self._keys, self._rules.subjects, cutoffs_by_request, self._table_state, masks, masking.save
        )
        with checkpoint_scope():
            rows = late_children.remove(self._table_schemas.entries, checkpoint(self._ledger.keys()))
        masked = {"masked": masking.merge_saved()} if masks else {}
        files = sum(
            table.purge(e.table_schema)
            for e in self._subject_tables
            for table in self._table_state(e.table_schema.table).tables
        )
        return {"rows": rows, **masked, "files": files}

    def _write_topic_tombstones(self, through_entry: int) -> dict[str, int]:
        """Writes tombstones for the events emptied in bronze into compacted topics, unless none was emptied since the
        last time."""
        entries = list(self._ledger.entries())
        if last_state_number(entries, TOPICS) > last_state_number(entries, BRONZE):
            return {"tombstones": 0}
        written = CompactedTopics(self._spark, self._pipeline).write_tombstones(
            self._emptied_events(self._topic_bronzes, "timestamp")
        )
        self._ledger.append([LedgerEntry(STATE, "", place=TOPICS, state=REMOVED, upto=through_entry)])
        return {"tombstones": written}

    def _emptied_events(self, bronzes: Sequence[Bronze], *more: str) -> DataFrame:
        """Returns the events that were emptied in these bronzes, each once."""
        events = reduce(DataFrame.unionByName, [bronze.emptied() for bronze in bronzes])
        return events.groupBy(*COORDINATES, *more).agg(F.min("request").alias("request"))

    def _erase_archive(self, entries: list[LedgerEntry], through_entry: int) -> dict[str, int]:
        """Erases the archive. Runs last because it raises if another program writes the archive."""
        bronzes = self._topic_bronzes
        erasure = erase_from_archive(self._spark, self._pipeline, self._emptied_events(bronzes))
        require_archive_read(self._spark, self._pipeline, bronzes)
        if erasure is None:
            return {}
        counts = {
            "records": erasure.records,
            "objects": erasure.objects,
            "versions": erasure.versions,
            "uploads": erasure.uploads,
        }
        # A concurrent archive run may write what bronze held when it began: then the next removal looks again.
        if not erasure.unnamed:
            self._record(entries, ARCHIVE, through_entry, counts)
        return counts

    def _record(self, entries: list[LedgerEntry], place: str, through_entry: int, counts: Mapping[str, int]) -> None:
        """Appends a state to the ledger unless it would repeat the last one."""
        recorded_through = max((e.upto or 0 for e in entries if e.kind == STATE and e.place == place), default=0)
        if recorded_through < through_entry or any(counts.values()):
            self._ledger.append(
                [LedgerEntry(STATE, "", place=place, state=REMOVED, upto=through_entry, evidence=_hash(counts))]
            )

    def _remove_old_files(self, through_entry: int) -> datetime | None:
        """Removes old files if the retention has passed, so that no reader or writer can be using them. Returns when it
        will have passed; None once they are removed."""
        states = [e for e in self._ledger.entries() if e.kind == STATE]
        last_removal = last_state_number(states, OLD_FILES)
        removals = [e.at for e in states if e.number > last_removal and e.place in DELTA_PLACES]
        if not removals:
            return None
        due = max(removals) + timedelta(hours=self._keep_hours)
        if datetime.now(UTC) < due:
            return due
        tables = table_folders(
            self._pipeline.layout, self._pipeline.name, [e.table_schema.table for e in self._subject_tables]
        )
        without_old_files(self._spark, [*event_folders(self._spark, self._pipeline), *tables], self._keep_hours)
        self._ledger.append([LedgerEntry(STATE, "", place=OLD_FILES, state=REMOVED, upto=through_entry)])
        return None

    @property
    def _topic_bronzes(self) -> list[Bronze]:
        """Returns the bronzes whose coordinates are those of the changelog's topics."""
        return [self._bronze(reader) for reader in self._readers if reader.from_topics]

    @property
    def _subject_tables(self) -> list[CatalogEntry]:
        """Returns the tables whose rows are or lead to subjects."""
        return [e for e in self._table_schemas.entries if self._rules.subjects.has_subject(e.table_schema.table)]

    @cached_property
    def _keys(self) -> LedgerKeys:
        assert self._rules.key_file is not None, "the configuration refuses subjects without a key file"
        return read_keys(self._rules.key_file)

    def _table_state(self, table: str) -> TableState:
        if table not in self._table_states:
            history, personal = table in self._rules.history, self._rules.personal.get(table, frozenset())
            layout, name, tuning = self._pipeline.layout, self._pipeline.name, self._rules.tuning
            self._table_states[table] = table_state(self._spark, layout, name, table, history, personal, tuning)
        return self._table_states[table]


def _hash(counts: Mapping[str, int]) -> str:
    return hashlib.sha256(json.dumps(dict(counts), sort_keys=True).encode()).hexdigest()
