"""Removes what was requested to be erased, place by place, for all requests at once.

Every place is searched for what exists now, by the keys and cutoffs in the ledger, and that is removed. So a killed run
is completed by the next one, and an old event that is captured again is removed again. What later places need to find
anything is removed last; old versions of tables are removed once no reader can be using them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from pyspark.sql import SparkSession

from ingest.config import Pipeline
from ingest.erasure.context import ErasureContext
from ingest.erasure.needle_collection import destroy_outdated
from ingest.erasure.old_life import last_suppressed_at
from ingest.erasure.places.place import Record, Removed
from ingest.erasure.places.register import delta_folders, delta_places, used_places
from ingest.erasure.removal_run import RemovalRun
from ingest.errors import ChangelogUnusable
from ingest.lakehouse.accounts import Accounts
from ingest.loop.table_faults import FaultyTables
from ingest.pipeline.composition import rules_of
from ingest.suppression.ledger import REQUESTED, STATE, LedgerEntry, cutoffs

REMOVED, PARTLY_REMOVED = "removed", "removed but for faulty tables"


def subject_tables_set_aside(spark: SparkSession, pipeline: Pipeline) -> dict[str, int]:
    """Returns the subject tables that are set aside, each with the last batch that it holds. The subjects of later
    events are unknown."""
    set_aside = Accounts(spark, pipeline.layout.accounts, pipeline.name).set_aside()
    return {t: set_aside[t].after for t in rules_of(pipeline).subjects.tables if t in set_aside}


def left_undone(pipeline: Pipeline, faulty: FaultyTables) -> ChangelogUnusable:
    """Returns the error that tells which tables an erasure has left, and why."""
    reasons = "; ".join(reason.text for reason in faulty.reasons.values())
    return ChangelogUnusable(
        f"pipeline {pipeline.name}: subjects are not erased from {', '.join(sorted(faulty.reasons))}, which keeps its "
        f"events, and are erased from everything else: {reasons}",
        f"mend these tables, then run: ingest erase {pipeline.name}",
    )


OnPlaceDone = Callable[[str, Mapping[str, int]], None]
"""Called after each place with the counts of what was removed there."""


@dataclass(frozen=True)
class RemovalOutcome:
    """`requests`: number of requests. `taken`: place → counts of what was removed in this run. `remain_until`: when the
    old files may be removed; None if they have been. `left`: the error that tells which tables were left; None if
    none was."""

    requests: int = 0
    taken: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    remain_until: datetime | None = None
    left: ChangelogUnusable | None = None


class Removal:
    """The removal of one pipeline."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, keep_hours: int | None = None) -> None:
        """`keep_hours`: how long old files are kept, in place of the pipeline's setting."""
        self._pipeline = pipeline
        configured = pipeline.privacy.keep_old_files_hours if pipeline.privacy else 0
        self._keep_hours = configured if keep_hours is None else keep_hours
        self._context = ErasureContext.of(spark, pipeline)
        self._set_aside = subject_tables_set_aside(spark, pipeline)

    def run(self, on_place_done: OnPlaceDone = lambda *_: None) -> RemovalOutcome:
        """Removes everything of every request that can be removed by now, and outdated values for certificates."""
        destroy_outdated(self._pipeline)
        entries = list(self._context.ledger.entries())
        requests = [e for e in entries if e.kind == REQUESTED]
        if not requests:
            return RemovalOutcome()
        arrived_at = last_suppressed_at(self._context.spark, self._pipeline)
        run = RemovalRun(self._context, cutoffs(requests), self._keep_hours, delta_places(), self._delta_folders)
        taken: dict[str, Mapping[str, int]] = {}
        remain_until: datetime | None = None
        for place in used_places(self._pipeline):
            removed = place.remove(run)
            if run.faulty:
                self._record_partial(place.name, removed)
            else:
                self._record(entries, place.name, requests[-1].number, removed, arrived_at)
            if removed.counts is not None:
                taken[place.name] = removed.counts
                on_place_done(place.name, removed.counts)
            removed.then()
            remain_until = removed.remain_until or remain_until
        return RemovalOutcome(len(requests), taken, remain_until, self._left(run.faulty))

    def _left(self, faulty: FaultyTables) -> ChangelogUnusable | None:
        """Returns the error that tells which tables this run has left."""
        if faulty:
            return left_undone(self._pipeline, faulty)
        if not self._set_aside:
            return None
        return ChangelogUnusable(
            f"pipeline {self._pipeline.name}: {', '.join(self._set_aside)} is set aside, so the subjects of its "
            "waiting events are unknown; everything else was removed",
            "`ingest status` says why it is set aside: mend it, `ingest run`, then the same command again",
        )

    def _record_partial(self, place: str, removed: Removed) -> None:
        """Appends an entry for a place of which a table is left, if anything was removed: no request is done by it; it
        tells when the place's files became old."""
        if removed.record is not Record.NEVER and any((removed.counts or {}).values()):
            self._context.ledger.append([LedgerEntry(STATE, "", place=place, state=PARTLY_REMOVED, upto=0)])

    def _record(
        self,
        entries: Sequence[LedgerEntry],
        place: str,
        through_entry: int,
        removed: Removed,
        arrived_at: datetime | None,
    ) -> None:
        """Appends the place's state to the ledger, if the removal asks for it. `entries`: those before this run.
        `arrived_at`: when events of erased lives were last met before it."""
        counts = removed.counts or {}
        states = [e for e in entries if e.kind == STATE and e.place == place and e.state == REMOVED]
        recorded_through = max((e.upto or 0 for e in states), default=0)
        is_first_since = arrived_at is not None and all(e.at <= arrived_at for e in states)
        is_new = recorded_through < through_entry or any(counts.values()) or is_first_since
        if removed.record is Record.ALWAYS or (removed.record is Record.UNLESS_REPEATED and is_new):
            evidence = _hash(counts) if removed.record is Record.UNLESS_REPEATED else None
            entry = LedgerEntry(STATE, "", place=place, state=REMOVED, upto=through_entry, evidence=evidence)
            self._context.ledger.append([entry])

    def _delta_folders(self) -> list[str]:
        tables = [e.table_schema.table for e in self._context.subject_tables]
        return delta_folders(self._context.spark, self._pipeline, tables)


def _hash(counts: Mapping[str, int]) -> str:
    return hashlib.sha256(json.dumps(dict(counts), sort_keys=True).encode()).hexdigest()
