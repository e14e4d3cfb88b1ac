"""Guards a pipeline's ledger: compares it with its copy and its anchor, which are outside of the lakehouse, and
restores it from the copy.

Every command that reads events goes through `LedgerGuard.require_whole` before it starts. Without that, a lakehouse
that was lost, rolled back or restored would merge the events of erased subjects again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from ingest.archive import ObjectStore
from ingest.config import Pipeline
from ingest.errors import ConfigError, IngestError, LedgerIncomplete, SubjectHeld
from ingest.names import path_segment
from ingest.spark.local_rows import local_rows
from ingest.suppression.copy_folder import CopyFolder, CopyStore
from ingest.suppression.ledger import FOUND, KEYS, REQUESTED, Ledger, LedgerEntry, LedgerState, held_requests
from ingest.suppression.ledger_anchor import LedgerAnchor
from ingest.suppression.ledger_chain import Head, LedgerFault, missing_from
from ingest.suppression.ledger_copy import KeyRow, LedgerCopy

_KEY_ROWS = T.StructType([T.StructField("number", T.LongType()), *KEYS.fields])


@dataclass(frozen=True)
class HeldSubject:
    """An erased subject that the source still holds, by the keyed hash of its key."""

    request: str
    table: str
    key_hash: str


@dataclass(frozen=True)
class LedgerReport:
    """What was found of a ledger. `entries`, `requests`: number of its own. `copied`, `anchored`: the last entry that
    its copy and its anchor know. `unknown`: why the copy could not be read; empty if it was.
    `held`: subjects that the source still holds."""

    entries: int
    requests: int
    copied: int
    anchored: int
    copy: str
    anchor: str
    faults: tuple[LedgerFault, ...] = ()
    unknown: str = ""
    held: tuple[HeldSubject, ...] = ()


class LedgerGuard:
    """The guard of one pipeline's ledger."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._ledger = Ledger(spark, pipeline.layout.ledger, pipeline.name)
        self._version = -1

    @cached_property
    def _copy(self) -> LedgerCopy:
        return LedgerCopy(_copy_store(self._pipeline), self._pipeline.name)

    @cached_property
    def _anchor(self) -> LedgerAnchor:
        privacy = self._pipeline.privacy
        assert privacy is not None, "only a pipeline with `privacy` has a ledger"
        return LedgerAnchor(f"{privacy.key_file}.ledger/{path_segment(self._pipeline.name)}.head")

    def require_whole(self) -> None:
        """Raises LedgerIncomplete if the copy or the anchor knows of entries that the ledger lacks, or entries are
        missing or altered. Otherwise brings the copy and the anchor up to the ledger."""
        if self._pipeline.privacy is None:
            self._require_no_request()
            return
        # Before the ledger: another command may append to it meanwhile, and copies afterwards.
        known, version = self._known(), self._ledger.version()
        state = self._ledger.state()
        require_no_fault(self._pipeline, self._faults(state, known))
        if state.requests and not any(table.subject for table in self._pipeline.tables.values()):
            self._refuse_without_subjects(state.requests)
        self._save(state)
        self._version = version

    def save(self) -> None:
        """Brings the copy and the anchor up to the ledger, if it has new entries since it was required to be whole."""
        if self._pipeline.privacy is not None and self._ledger.version() > self._version:
            self._version = self._ledger.version()
            self._save(self._ledger.state())

    def report(self) -> LedgerReport:
        """Returns the state of the ledger, its copy and its anchor, the copy's objects by their names alone."""
        known = self._known()
        return self._report(self._ledger.state(), known)

    def report_without_copy(self, unknown: str) -> LedgerReport:
        """Returns `report` of the ledger alone. `unknown`: why the copy or the anchor can't be read."""
        return replace(self._report(self._ledger.state(), []), unknown=unknown)

    def verify(self) -> LedgerReport:
        """Returns `report`, and faults of the copy: every object of it is read."""
        found = self.report()
        faults = [LedgerFault(f.number, f"in the copy: {f.problem}") for f in self._copy.faults(self._copy.read())]
        return replace(found, faults=(*found.faults, *faults))

    def restore(self, accept_loss: bool = False) -> LedgerReport:
        """Replaces the ledger by its copy. Requests that only the ledger has are kept, if it is intact in itself.

        Raises LedgerIncomplete if the copy is damaged, or if entries are known that neither has; `accept_loss`: goes
        on without these."""
        known, state = self._known(), self._ledger.state()
        if not self._faults(state, known):
            self._save(state)
            return self._report(state, known)
        copied = self._copy.read()
        for fault in self._copy.faults(copied):
            raise LedgerIncomplete(
                f"the copy of the ledger in {self._copy.uri} is damaged: entry {fault.number} {fault.problem}",
                "bring its objects back from a version or a backup, then run the same command again",
            )
        reached = max(self._anchor.head().number, state.reached, state.head.number if state.faults else 0)
        if reached > copied.head.number and not accept_loss:
            raise LedgerIncomplete(
                f"entries {copied.head.number + 1} to {reached} of the ledger of {self._pipeline.name} are in neither "
                f"the ledger nor its copy in {self._copy.uri}",
                "bring the copy's objects back from a version or a backup. If they are lost for good, restore with "
                "--accept-loss, and request these erasures again",
            )
        self._replace([entry for entry, _ in copied.entries], self._copy.keys(copied), copied.head, state)
        restored = self._ledger.state()
        self._save(restored)
        self._anchor.store(restored.head)
        return self._report(restored, self._known())

    def _replace(self, entries: list[LedgerEntry], keys: Iterable[KeyRow], head: Head, state: LedgerState) -> None:
        key_rows = self._key_frame(keys)
        own_entries, own_keys = list[LedgerEntry](), None
        if state.hashes and not state.faults:
            own_entries, own_keys = self._only_here(entries, key_rows)
        rows = self._ledger.rows_of(entries, key_rows)
        self._ledger.replace(rows, head, own_entries, own_keys)

    def _only_here(self, copied: list[LedgerEntry], copied_keys: DataFrame) -> tuple[list[LedgerEntry], DataFrame]:
        """Returns the requests that only the ledger has, an entry for the others that have more keys there, and the
        keys of both."""
        own_keys = self._ledger.keys().distinct().join(copied_keys.select(*KEYS.names), KEYS.names, "left_anti")
        own_keys = own_keys.localCheckpoint()
        known = {entry.request for entry in copied if entry.kind == REQUESTED}
        found = [e for e in self._ledger.entries() if e.kind == REQUESTED and e.request not in known]
        with_keys = {row["request"] for row in own_keys.select("request").distinct().collect()}  # a row per request
        return [*found, *(LedgerEntry(FOUND, request) for request in sorted(with_keys & known))], own_keys

    def _key_frame(self, keys: Iterable[KeyRow]) -> DataFrame:
        rows = [dict(zip(_KEY_ROWS.names, row, strict=True)) for row in keys]
        return local_rows(self._spark, rows, _KEY_ROWS)

    def _known(self) -> list[tuple[str, Head]]:
        """Returns the entries that the ledger has to have, each with the place that knows it."""
        anchor = (f"its anchor {self._anchor.path}", self._anchor.head())
        return [*((f"its copy {self._copy.uri}", head) for head in self._copy.heads()), anchor]

    @staticmethod
    def _faults(state: LedgerState, known: list[tuple[str, Head]]) -> list[LedgerFault]:
        missing = [fault for where, head in known for fault in missing_from(state.hashes, [head], where)]
        return [*state.faults, *missing]

    def _report(self, state: LedgerState, known: list[tuple[str, Head]]) -> LedgerReport:
        heads = [head.number for _, head in known] or [0]
        places, faults = (self._copy.uri, self._anchor.path), tuple(self._faults(state, known))
        counts = (state.head.number, state.requests, max(heads[:-1], default=0), heads[-1])
        return LedgerReport(*counts, *places, faults, held=_held_subjects(state.held))

    def _save(self, state: LedgerState) -> None:
        """Writes what the copy and the anchor lack of an intact ledger."""
        copied = max((head.number for head in self._copy.heads()), default=0)
        if state.head.number > copied:
            entries = self._ledger.entries_after(copied)
            rows = self._ledger.keys_by_entry(copied).toLocalIterator()  # streamed, part by part
            self._copy.write(entries, ((r.number, r.request, r.table, r.key_hash, r.key_version) for r in rows))
        if state.head.number and self._anchor.head() != state.head:
            # Where only another user may write beside the key file, the copy alone holds the head.
            self._anchor.store(state.head)

    def _require_no_request(self) -> None:
        if self._ledger.version() >= 0 and (requests := self._ledger.state().requests):
            self._refuse_without_subjects(requests)

    def _refuse_without_subjects(self, requests: int) -> None:
        raise ConfigError(
            f"pipeline {self._pipeline.name} has {requests} requests for erasure, and its file no longer names the "
            "subjects of any table: their events could not be told from others",
            "put tables: {…: {subject: …}} and privacy: {key_file: …} back",
        )


def require_no_fault(pipeline: Pipeline, faults: Sequence[LedgerFault]) -> None:
    """Raises LedgerIncomplete for the first of these faults."""
    for fault in faults:
        raise LedgerIncomplete(
            f"the ledger of erasures of {pipeline.name} in {pipeline.lakehouse} is incomplete: entry {fault.number} "
            f"{fault.problem}. Erased subjects would come back",
            f"bring it back from its copy: ingest ledger restore {pipeline.name}",
        )


def held_subjects(spark: SparkSession, pipeline: Pipeline) -> tuple[HeldSubject, ...]:
    """Returns the erased subjects that a pipeline's source still holds, by its own ledger."""
    ledger = Ledger(spark, pipeline.layout.ledger, pipeline.name)
    return _held_subjects(held_requests(ledger.entries()))


def _held_subjects(requests: Iterable[LedgerEntry]) -> tuple[HeldSubject, ...]:
    return tuple(HeldSubject(one.request, one.table or "", one.key_hash or "") for one in requests)


def require_not_held(held: Sequence[HeldSubject]) -> None:
    """Raises SubjectHeld if the source still holds any of these subjects."""
    if held:
        first = held[0]
        raise SubjectHeld(
            f"the source still holds {len(held)} erased subjects, the first in {first.table}: its key has the hash "
            f"{first.key_hash}, its request is {first.request}",
            "delete the subject's rows at the source, then request the erasure again",
        )


def ledger_report(spark: SparkSession, pipeline: Pipeline) -> LedgerReport | None:
    """Returns the state of a pipeline's ledger; None if its file has no `privacy`."""
    if pipeline.privacy is None:
        return None
    guard = LedgerGuard(spark, pipeline)
    try:
        return guard.report()
    except IngestError as error:
        return guard.report_without_copy(error.problem)


def _copy_store(pipeline: Pipeline) -> CopyStore:
    """Returns where the pipeline's ledger is copied to."""
    privacy, archive = pipeline.privacy, pipeline.archive
    assert privacy is not None, "only a pipeline with `privacy` has a ledger"
    options = dict(archive.s3) if archive is not None else {}
    place = privacy.ledger_copy
    if place is None and archive is not None and archive.layout == "ingest":
        place = archive.uri
    if place is None:
        place = f"{privacy.key_file}.ledger"
    return ObjectStore(place, options) if place.startswith("s3://") else CopyFolder(str(Path(place).expanduser()))
