"""Requests an erasure: finds what belongs to the subjects, determines the cutoff, and appends the ledger entries that
suppress their events from then on. Stored bytes stay until the removal."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.backfill.source_readers import source_readers
from ingest.config import Pipeline
from ingest.erasure.needle_collection import collects_values, seal_needles
from ingest.erasure.subject_search import SubjectSearch, count_items
from ingest.errors import ConfigError
from ingest.lakehouse.bronze import Offsets
from ingest.lakehouse.bronze.summary import BronzeSummary, LogEnd, offsets_of
from ingest.lakehouse.history_facts import HistoryFacts
from ingest.loop.table_faults import FAULTS, FaultyTables
from ingest.pipeline.composition import rules_of
from ingest.pipeline.ledger_guard import LedgerGuard
from ingest.pipeline.shredding import shred
from ingest.sources.kafka_admin import KafkaAdmin
from ingest.spark.local_rows import local_rows
from ingest.suppression.cutoff import WHOLE_SOURCE, Cutoff
from ingest.suppression.key_file import LedgerKeys, read_keys
from ingest.suppression.ledger import KEYS, REQUESTED, Ledger, LedgerEntry

_SUBJECT = re.compile(r"([^:\s]+):(.+)", re.DOTALL)


@dataclass(frozen=True)
class SubjectId:
    """A subject's kind and key, as in `member:42`."""

    kind: str
    key: str

    def __repr__(self) -> str:
        return f"SubjectId({self.kind})"

    @classmethod
    def parse(cls, text: str) -> SubjectId:
        """Parses `KIND:KEY`, of which the key is taken as it is: `member:42 ` is another subject than `member:42`.
        Raises ConfigError, which shows nothing of the text."""
        match = _SUBJECT.fullmatch(text)
        if match is None:
            raise ConfigError("a subject is not named by its kind and its key", "write it as member:42")
        return cls(match[1], match[2])


def subject_of_json(text: str | bytes) -> tuple[SubjectId, str | None]:
    """Returns the subject and the reason of a request in JSON: `{"subject": "member:42", "reason": "…"}`. Raises
    ConfigError, which shows nothing of the text."""
    try:
        document: Any = json.loads(text)
    except ValueError:
        document = None
    if not isinstance(document, dict) or not isinstance(document.get("subject"), str):
        raise ConfigError("it is no JSON object with a subject", 'write {"subject": "member:42", "reason": "…"}')
    reason = document.get("reason")
    return SubjectId.parse(document["subject"]), reason if isinstance(reason, str) else None


@dataclass(frozen=True)
class ErasureRequest:
    """A request: its entry in the ledger, or the entry that it would get. `subject`: None if a delete at the source
    requests it."""

    entry: LedgerEntry
    subject: SubjectId | None = None


@dataclass(frozen=True)
class ErasurePlan:
    """What requests concern: counts by place and table, the requests, and the `KEYS` that they suppress. `faulty`: the
    tables that could not be searched. `values`: table → `REQUEST`, `COLUMN`, `KIND` and `VALUE` of its personal
    columns, not computed yet."""

    counts: Mapping[tuple[str, str], int]
    requests: Sequence[ErasureRequest]
    keys: DataFrame
    faulty: FaultyTables
    values: Mapping[str, Sequence[DataFrame]] = field(default_factory=dict)


def plan_erasure(
    spark: SparkSession, pipeline: Pipeline, subjects: Sequence[SubjectId], reason: str | None, cutoff: Cutoff
) -> ErasurePlan:
    """Returns what the erasure of these subjects would concern. Writes nothing."""
    return plan_requests(spark, pipeline, new_requests(pipeline, ((subject, reason) for subject in subjects), cutoff))


def new_requests(
    pipeline: Pipeline, subjects_and_reasons: Iterable[tuple[SubjectId, str | None]], cutoff: Cutoff
) -> list[ErasureRequest]:
    """Returns a request per subject and reason. Raises ConfigError if no table has such subjects."""
    keys, subjects = ledger_keys(pipeline), rules_of(pipeline).subjects
    requests = []
    for subject, reason in subjects_and_reasons:
        table = subjects.root_table(subject.kind)
        entry = new_entry(subject.kind, table, keys.hash(table, subject.key), keys, reason, cutoff)
        requests.append(ErasureRequest(entry, subject))
    return requests


def plan_requests(spark: SparkSession, pipeline: Pipeline, requests: Sequence[ErasureRequest]) -> ErasurePlan:
    """Returns what these requests would concern. Writes nothing."""
    keys = ledger_keys(pipeline)
    rows = [{name: getattr(r.entry, name) for name in KEYS.names} for r in requests]
    subject_keys = local_rows(spark, rows, KEYS)
    faulty, key_frames, counts = FaultyTables("searched"), [subject_keys], dict[tuple[str, str], int]()
    values = {}
    for items in SubjectSearch(spark, pipeline, faulty, collects_values(pipeline)).find(subject_keys):
        columns = {"table": F.lit(items.table), "key_version": F.lit(keys.newest).cast("int")}
        key_frames.append(items.keys.withColumns(columns).select(*KEYS.names))
        values[items.table] = items.values
        try:
            counts |= count_items(items)
        except FAULTS as error:
            faulty.failed(items.table, error)
    return ErasurePlan(counts, requests, reduce(DataFrame.unionByName, key_frames).distinct(), faulty, values)


def request_erasure(spark: SparkSession, pipeline: Pipeline, plan: ErasurePlan) -> list[LedgerEntry]:
    """Seals the subjects' values for their certificates, then appends the plan to the ledger: from here on every merge
    suppresses the subjects' events up to the cutoff. Copies the ledger, then destroys the subjects' data keys; if that
    fails, the removal does it."""
    if collects_values(pipeline):
        seal_needles(pipeline, [r.entry.request for r in plan.requests], plan.values, plan.faulty)
    ledger = Ledger(spark, pipeline.layout.ledger, pipeline.name)
    entries = ledger.append([r.entry for r in plan.requests], plan.keys)
    LedgerGuard(spark, pipeline).save()
    shred(spark, pipeline)
    return entries


def current_cutoff(spark: SparkSession, pipeline: Pipeline, topics: bool) -> Cutoff:
    """Returns the cutoff after everything that was ever read and, with `topics`, everything that the topics hold now.
    Raises Unreachable and SourceRefused."""
    offsets: Offsets = {}
    all_log_ends: list[LogEnd] = []
    rules, history = rules_of(pipeline), HistoryFacts(spark, pipeline.layout.history_facts)
    for reader in source_readers(spark, pipeline):
        bronze = reader.bronze(spark, rules)
        log_ends = BronzeSummary(bronze, reader.writer, history, rules.view, stores=False).log_ends(bronze.last_batch())
        if reader.from_topics:
            _raise_to(offsets, offsets_of(log_ends))
        all_log_ends += log_ends
    if topics:
        admin = KafkaAdmin(pipeline.source.kafka)
        end_offsets = admin.end_offsets(admin.topics(pipeline.source.topics, pipeline.source.changelog_pattern))
        _raise_to(offsets, end_offsets)
    sequences = {table for table, _ in rules.naming.sequences}
    positions: dict[str, tuple[int, ...]] = {}
    for end in all_log_ends:
        if end.placed is not None:
            table = end.table if end.table in sequences else WHOLE_SOURCE
            positions[table] = max(end.placed, positions.get(table, end.placed))
    return Cutoff(offsets, positions)


def _raise_to(offsets: Offsets, ends: Mapping[str, Mapping[int, int]]) -> None:
    for topic, partitions in ends.items():
        known = offsets.setdefault(topic, {})
        known.update({p: max(end, known.get(p, 0)) for p, end in partitions.items()})


def ledger_keys(pipeline: Pipeline) -> LedgerKeys:
    """Reads the ledger's keys. Raises ConfigError if the pipeline's file names no key file, or the file is invalid."""
    if pipeline.privacy is None:
        raise ConfigError(
            f"nothing in pipeline {pipeline.name} leads to a subject",
            "declare subjects, tables: {…: {subject: …}}, and name a key_file",
        )
    return read_keys(pipeline.privacy.key_file)


def new_entry(
    kind: str, table: str, key_hash: str, keys: LedgerKeys, reason: str | None, cutoff: Cutoff
) -> LedgerEntry:
    """Returns the ledger entry of a new request. `key_hash`: of the subject's key in its table, under the newest
    secret."""
    version = keys.newest
    return LedgerEntry(
        REQUESTED,
        str(uuid4()),
        subject=kind,
        table=table,
        key_hash=key_hash,
        key_version=version,
        key_check=keys.check(version),
        reason=reason,
        cut_off=cutoff.to_json(),
    )
