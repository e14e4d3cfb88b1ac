"""Taking away what was asked to be erased, place by place, for all requests at once.

Every step looks for what is there now, by the keys and cut-offs in the ledger, and takes that away: one that died in
the middle is made good by the same again, and so is an old event that was captured once more since. What is needed to
find anything goes last, and old versions of tables go once nobody can be reading them.
"""

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
from ingest.erasure.archive_erasing import erased_from_archive, require_read
from ingest.erasure.compacted_topics import CompactedTopics
from ingest.erasure.masking import Masking
from ingest.erasure.old_events import READER, OldEvents
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

TOMBSTONES, QUARANTINE, TABLES, BRONZE = "tombstones", "quarantine", "tables", "bronze"
OLD_FILES, ARCHIVE, DATA_KEYS, TOPICS = "old files", "archive", "data keys", "compacted topics"
PLACES = (TOMBSTONES, QUARANTINE, TABLES, BRONZE)
"""In this order: what the events of bronze tell is needed to find the rest."""
REMOVED = "removed"


def subjects_aside(spark: SparkSession, pipeline: Pipeline) -> dict[str, int]:
    """Returns the tables, of those that lead to subjects, that are set aside, each with the last batch that it holds:
    nothing tells whose events wait after it."""
    aside = Accounts(spark, pipeline.layout.accounts, pipeline.name).set_aside()
    return {t: aside[t].after for t in rules_of(pipeline).subjects.tables if t in aside}


Seen = Callable[[str, Mapping[str, int]], None]
"""Hears of each place when it is done, and how much was taken away there."""


@dataclass(frozen=True)
class Outcome:
    """`requests`: how many there are. `taken`: place → what was taken away in this run, and how much. `remain_until`:
    from when on the old files may go; None where they are gone."""

    requests: int = 0
    taken: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    remain_until: datetime | None = None


class Removal:
    """Of one pipeline."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, keep_hours: int | None = None) -> None:
        """`keep_hours`: for how long old files stay, in place of what the pipeline's file says."""
        self._spark = spark
        self._pipeline = pipeline
        self._rules = rules_of(pipeline)
        told = pipeline.privacy.keep_old_files_hours if pipeline.privacy else 0
        self._keep = told if keep_hours is None else keep_hours
        self._ledger = Ledger(spark, pipeline.layout.ledger, pipeline.name)
        self._table_schemas = TableSchemas(spark, pipeline.name, pipeline.layout, self._rules)
        self._readers = source_readers(spark, pipeline)
        self._quarantine = Quarantine(spark, pipeline.layout.quarantine, pipeline.name)
        self._kept: dict[str, TableState] = {}
        self._aside = subjects_aside(spark, pipeline)

    def run(self, seen: Seen = lambda *_: None) -> Outcome:
        """Until nothing of any request is left that can be taken away by now."""
        entries = list(self._ledger.entries())
        asked = [e for e in entries if e.kind == REQUESTED]
        if not asked:
            return Outcome()
        taken: dict[str, Mapping[str, int]] = {}
        destroyed = shred(self._spark, self._pipeline)
        if destroyed is not None:
            taken[DATA_KEYS] = {"keys": destroyed}
            self._note(entries, DATA_KEYS, asked[-1].number, taken[DATA_KEYS])
            seen(DATA_KEYS, taken[DATA_KEYS])
        for place, found in self._steps(cutoffs(asked)):
            taken[place] = found
            self._note(entries, place, asked[-1].number, found)
            seen(place, found)
        remain_until = self._old_files(asked[-1].number)
        # What needs others comes after what doesn't.
        if self._pipeline.writes_tombstones:
            taken[TOPICS] = self._entombed(asked[-1].number)
            seen(TOPICS, taken[TOPICS])
        if self._pipeline.archive is not None:
            taken[ARCHIVE] = self._archive(entries, asked[-1].number)
            seen(ARCHIVE, taken[ARCHIVE])
        if self._aside:
            raise ChangelogUnusable(
                f"pipeline {self._pipeline.name}: whose the events are that wait for {', '.join(self._aside)} can't be "
                "known, as their tables are set aside; all else was removed",
                "`ingest status` says why they are: mend it, `ingest run`, then the same command again",
            )
        return Outcome(len(asked), taken, remain_until)

    def _steps(self, ends: Mapping[str, Cutoff]) -> Iterator[tuple[str, dict[str, int]]]:
        """Each takes away what is there and tells of it. What comes later may need what an earlier one has found."""
        search = OldEvents(
            self._spark, self._pipeline, self._rules, self._table_schemas, self._stored, self._ledger, self._keys
        )
        old = search.found(self._readers)
        places = old.select(*(F.col(EVENT_ID)[c].alias(c) for c in COORDINATES), "request", READER)
        first = places.groupBy(*COORDINATES, READER).agg(F.min("request").alias("request")).localCheckpoint()
        counts = {r[READER]: r["count"] for r in first.groupBy(READER).count().collect()}  # a row per reader
        events = sum(counts.values())
        yield TOMBSTONES, {"files": self._graves(old, ends)}
        yield QUARANTINE, {"files": self._quarantine.remove(first) if events else 0}
        yield TABLES, self._rows(ends)
        yield BRONZE, {"events": events, "files": self._emptied(search, first, counts)}
        search.remember()

    def _emptied(self, search: OldEvents, events: DataFrame, holding: Collection[str]) -> int:
        """How many files were written anew, of the bronze of those readers that hold such events."""
        mine = [reader for reader in self._readers if reader.writer in holding]
        return sum(
            self._bronze(one).empty(events.where(F.col(READER) == one.writer), search.spans(one.writer)) for one in mine
        )

    def _bronze(self, reader: SourceReader) -> Bronze:
        return reader.bronze(self._spark, self._rules)

    def _graves(self, old: DataFrame, ends: Mapping[str, Cutoff]) -> int:
        """Of how many files tombstones were taken. Those of a new life stay."""
        files = 0
        for entry in self._subjects:
            tombstones = self._stored(entry.table_schema.table).tombstones
            if not tombstones.exists():
                continue
            mine = old.where(F.col("table") == entry.table_schema.table)
            keys = mine.select("request", F.explode(TOMBSTONE_KEYS).alias(TOMBSTONE_KEY)).distinct()
            hits = tombstones.rows().select("*", *event_columns(entry)).join(F.broadcast(keys), TOMBSTONE_KEY)
            gone = (
                with_cutoff_flags(hits, ends, entry.table_schema.table)
                .where(BEFORE_CUTOFF)
                .select(TOMBSTONE_KEY, POSITION_COLUMN)
                .distinct()
            )
            files += tombstones.remove(gone)
        return files

    def _rows(self, ends: Mapping[str, Cutoff]) -> dict[str, int]:
        table_schemas, masks = [entry.table_schema for entry in self._subjects], self._rules.masks
        masking = Masking(self._spark, self._pipeline, self._rules, table_schemas, ends)
        late_children = LateChildren(
            self._ledger, self._keys, self._rules.subjects, ends, self._stored, masks, masking.keep
        )
        with checkpoint_scope():
            rows = late_children.remove(self._table_schemas.entries, checkpoint(self._ledger.keys()))
        masked = {"masked": masking.finish()} if masks else {}
        files = sum(
            kept.purge(e.table_schema) for e in self._subjects for kept in self._stored(e.table_schema.table).tables
        )
        return {"rows": rows, **masked, "files": files}

    def _entombed(self, upto: int) -> dict[str, int]:
        """Once bronze tells which records these are, and where nothing was taken from it since, not again."""
        entries = list(self._ledger.entries())
        if last_state_number(entries, TOPICS) > last_state_number(entries, BRONZE):
            return {"tombstones": 0}
        written = CompactedTopics(self._spark, self._pipeline).write_tombstones(
            self._empty(self._of_topics, "timestamp")
        )
        self._ledger.append([LedgerEntry(STATE, "", place=TOPICS, state=REMOVED, upto=upto)])
        return {"tombstones": written}

    def _empty(self, bronzes: Sequence[Bronze], *more: str) -> DataFrame:
        """The events that were emptied in these, each once."""
        empty = reduce(DataFrame.unionByName, [bronze.emptied() for bronze in bronzes])
        return empty.groupBy(*COORDINATES, *more).agg(F.min("request").alias("request"))

    def _archive(self, entries: list[LedgerEntry], upto: int) -> dict[str, int]:
        """Last: where somebody else writes it, this ends with an error that says so."""
        bronzes = self._of_topics
        done = erased_from_archive(self._spark, self._pipeline, self._empty(bronzes))
        require_read(self._spark, self._pipeline, bronzes)
        if done is None:
            return {}
        taken = {"records": done.records, "objects": done.objects, "versions": done.versions, "uploads": done.uploads}
        # What a run has written that is under way may hold what bronze held when it began: the next one looks again.
        if not done.unnamed:
            self._note(entries, ARCHIVE, upto, taken)
        return taken

    def _note(self, entries: list[LedgerEntry], place: str, upto: int, taken: Mapping[str, int]) -> None:
        """What the ledger doesn't say already."""
        reached = max((e.upto or 0 for e in entries if e.kind == STATE and e.place == place), default=0)
        if reached < upto or any(taken.values()):
            self._ledger.append([LedgerEntry(STATE, "", place=place, state=REMOVED, upto=upto, evidence=_hash(taken))])

    def _old_files(self, upto: int) -> datetime | None:
        """Takes them away, where nobody can be reading or writing beside them any more; else from when on."""
        states = [e for e in self._ledger.entries() if e.kind == STATE]
        done = last_state_number(states, OLD_FILES)
        since = [e.at for e in states if e.number > done and e.place in PLACES]
        if not since:
            return None
        due = max(since) + timedelta(hours=self._keep)
        if datetime.now(UTC) < due:
            return due
        tables = table_folders(
            self._pipeline.layout, self._pipeline.name, [e.table_schema.table for e in self._subjects]
        )
        without_old_files(self._spark, [*event_folders(self._spark, self._pipeline), *tables], self._keep)
        self._ledger.append([LedgerEntry(STATE, "", place=OLD_FILES, state=REMOVED, upto=upto)])
        return None

    @property
    def _of_topics(self) -> list[Bronze]:
        """The bronzes whose coordinates are those of the changelog's topics."""
        return [self._bronze(one) for one in self._readers if one.from_topics]

    @property
    def _subjects(self) -> list[CatalogEntry]:
        """The tables that lead to subjects."""
        return [e for e in self._table_schemas.entries if self._rules.subjects.leads(e.table_schema.table)]

    @cached_property
    def _keys(self) -> LedgerKeys:
        assert self._rules.key_file is not None, "the configuration refuses subjects without a key file"
        return read_keys(self._rules.key_file)

    def _stored(self, table: str) -> TableState:
        if table not in self._kept:
            history, personal = table in self._rules.history, self._rules.personal.get(table, frozenset())
            layout, name = self._pipeline.layout, self._pipeline.name
            self._kept[table] = table_state(self._spark, layout, name, table, history, personal)
        return self._kept[table]


def _hash(taken: Mapping[str, int]) -> str:
    return hashlib.sha256(json.dumps(dict(taken), sort_keys=True).encode()).hexdigest()
