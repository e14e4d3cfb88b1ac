"""What the ledger tells a certificate: which request it was, up to where, and that all of it was taken away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.sql import SparkSession

from ingest.config import Pipeline
from ingest.erasure.removal import ARCHIVE, DATA_KEYS, OLD_FILES, PLACES, TOPICS, subjects_aside
from ingest.errors import ConfigError, ProofFailed
from ingest.proof.certificate import Erasure
from ingest.suppression.cutoff import WHOLE_SOURCE, Cutoff
from ingest.suppression.ledger import REQUESTED, STATE, Ledger, LedgerEntry, last_state_number


def erasure_of(spark: SparkSession, pipeline: Pipeline, request: str) -> Erasure:
    """Raises ConfigError where nobody has asked for it, and ProofFailed where the ledger is not what was written, or
    the request is not done."""
    ledger = Ledger(spark, pipeline.layout.ledger, pipeline.name)
    for fault in ledger.verify():
        raise ProofFailed(
            f"the ledger of {pipeline.name}, entry {fault.number}: {fault.problem}",
            "no certificate stands on it: find out who wrote there, and restore it from a copy",
        )
    entries = list(ledger.entries())
    asked = next((e for e in entries if e.kind == REQUESTED and e.request == request), None)
    if asked is None or asked.key_hash is None or asked.cut_off is None:
        raise ConfigError(
            f"nobody has asked for the request {request} in {pipeline.name}", "`ingest erase` tells it when it is asked"
        )
    _require_done(pipeline, asked, entries)
    if aside := subjects_aside(spark, pipeline):
        raise ProofFailed(
            f"request {request} is not done: whose the events are that wait for {', '.join(aside)} can't be known",
            f"`ingest status {pipeline.name}` says why they are set aside: mend it, then run and erase once more",
        )
    return Erasure(request, asked.key_hash, dict(_ends(Cutoff.from_json(asked.cut_off))), entries[-1].hash)


def _require_done(pipeline: Pipeline, asked: LedgerEntry, entries: Sequence[LedgerEntry]) -> None:
    states = [e for e in entries if e.kind == STATE and (e.upto or 0) >= asked.number]
    wanted = [*PLACES, OLD_FILES, *([ARCHIVE] if pipeline.archive is not None else [])]
    wanted += [DATA_KEYS] if pipeline.shreds else []
    wanted += [TOPICS] if pipeline.writes_tombstones else []
    waiting = [place for place in wanted if not any(e.place == place for e in states)]
    removed = last_state_number(states, OLD_FILES)
    if not waiting and any(e.number > removed for e in states if e.place in PLACES):
        waiting = [OLD_FILES]
    if waiting:
        raise ProofFailed(
            f"request {asked.request} is not done: nothing was removed yet from {', '.join(waiting)}",
            f"`ingest erase {pipeline.name}` goes on with it, and tells when old files may go",
        )


def _ends(cutoff: Cutoff) -> Iterator[tuple[str, str]]:
    for topic, ends in cutoff.offsets.items():
        yield from ((f"{topic}, partition {p}", f"before offset {end}") for p, end in ends.items())
    for table, at in cutoff.positions.items():
        yield f"table {table}" if table != WHOLE_SOURCE else "source", f"position {', '.join(map(str, at))}"
