"""The facts that a certificate takes from the ledger: the request, its cutoffs, and that its removal is complete; and
the values that its scan searches for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from pyspark.sql import SparkSession

from ingest.config import Pipeline
from ingest.erasure.context import ErasureContext
from ingest.erasure.needle_collection import sealed_file
from ingest.erasure.old_life import last_suppressed_at, uncaptured_partitions
from ingest.erasure.places import ARCHIVE, OLD_FILES
from ingest.erasure.places.register import delta_places, used_places
from ingest.erasure.removal import subject_tables_set_aside
from ingest.erasure.shared_values import shared_needles
from ingest.errors import ConfigError, ProofFailed
from ingest.proof.certificate import Erasure
from ingest.proof.needles.collected import CollectedNeedles
from ingest.proof.needles.terms import CollectedTerms, collected_terms, needles_of
from ingest.suppression.cutoff import WHOLE_SOURCE, Cutoff
from ingest.suppression.ledger import REQUESTED, STATE, Ledger, LedgerEntry, held_requests, last_state_number


def erasure_of(spark: SparkSession, pipeline: Pipeline, request: str) -> Erasure:
    """Returns the facts of a completed request. Raises ConfigError if there is no such request, and ProofFailed if the
    ledger was altered, the source still holds the subject, records up to the cutoff were not captured, or the removal
    is incomplete."""
    ledger = Ledger(spark, pipeline.layout.ledger, pipeline.name)
    for fault in ledger.verify():
        raise ProofFailed(
            f"the ledger of {pipeline.name}, entry {fault.number}: {fault.problem}",
            "no certificate stands on it: find out who wrote there, and restore it from a copy",
        )
    entries = list(ledger.entries())
    request_entry = next((e for e in entries if e.kind == REQUESTED and e.request == request), None)
    if request_entry is None or request_entry.key_hash is None or request_entry.cut_off is None:
        raise ConfigError(
            f"pipeline {pipeline.name} has no request {request}", "`ingest erase` prints the id of each request"
        )
    if any(one.request == request for one in held_requests(entries)):
        raise ProofFailed(
            f"request {request}: the source still holds the subject, by events after the cutoff",
            f"delete its rows at the source, then `ingest run {pipeline.name}`, and request the erasure again",
        )
    cutoff = Cutoff.from_json(request_entry.cut_off)
    if waiting := uncaptured_partitions(spark, pipeline, cutoff):
        raise ProofFailed(
            f"request {request} is not done: records up to its cutoff were not captured yet ({'; '.join(waiting)})",
            f"`ingest run {pipeline.name}`, then `ingest erase {pipeline.name}`; if a topic was created again since, "
            "request the erasure again",
        )
    _require_done(pipeline, request_entry, entries, last_suppressed_at(spark, pipeline))
    if set_aside := subject_tables_set_aside(spark, pipeline):
        raise ProofFailed(
            f"request {request} is not done: {', '.join(set_aside)} is set aside, so the subjects of its waiting "
            "events are unknown",
            f"`ingest status {pipeline.name}` says why: mend it, then `ingest run` and `ingest erase`",
        )
    return Erasure(
        request,
        request_entry.key_hash,
        dict(_cutoffs_as_text(cutoff)),
        entries[-1].hash,
    )


def collected_needles(spark: SparkSession, pipeline: Pipeline, request: str) -> CollectedTerms | None:
    """Returns the search terms of the values that were collected when the erasure was requested, without those of
    others; None if none were, or they are destroyed. Raises ConfigError if their file can't be read."""
    body = sealed_file(pipeline, request).read() if pipeline.privacy is not None else None
    if body is None:
        return None
    collected = CollectedNeedles.from_bytes(body)
    needles = needles_of(collected)
    found = shared_needles(ErasureContext.of(spark, pipeline), needles)
    return collected_terms(needles, collected.uncollected, found.whole, found.within)


def _require_done(
    pipeline: Pipeline, request_entry: LedgerEntry, entries: Sequence[LedgerEntry], suppressed_at: datetime | None
) -> None:
    states = [e for e in entries if e.kind == STATE and (e.upto or 0) >= request_entry.number]
    missing = [p.name for p in used_places(pipeline) if not any(e.place == p.name for e in states)]
    old_files_removed = last_state_number(states, OLD_FILES)
    if not missing and any(e.number > old_files_removed for e in states if e.place in delta_places()):
        missing = [OLD_FILES]
    if missing:
        raise ProofFailed(
            f"request {request_entry.request} is not done: nothing was removed yet from {', '.join(missing)}",
            f"`ingest erase {pipeline.name}` continues it, and says when old files may be removed",
        )

    if suppressed_at is not None and (before := unvisited_places(pipeline, states, suppressed_at)):
        raise ProofFailed(
            f"request {request_entry.request} is not done: events of erased lives arrived after the last removal from "
            f"{', '.join(before)}",
            f"`ingest erase {pipeline.name}` visits these places again",
        )


def unvisited_places(pipeline: Pipeline, states: Sequence[LedgerEntry], since: datetime) -> list[str]:
    """Returns the places from which nothing was removed after `since`."""
    visited = {e.place for e in states if e.at > since}
    # Other places aren't recorded in every visit.
    holding = delta_places() | {ARCHIVE}
    return [p.name for p in used_places(pipeline) if p.name in holding and p.name not in visited]


def _cutoffs_as_text(cutoff: Cutoff) -> Iterator[tuple[str, str]]:
    for topic, ends in cutoff.offsets.items():
        yield from ((f"{topic}, partition {p}", f"before offset {end}") for p, end in ends.items())
    for table, position in cutoff.positions.items():
        yield f"table {table}" if table != WHOLE_SOURCE else "source", f"position {', '.join(map(str, position))}"
