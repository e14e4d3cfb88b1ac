"""Asking for an erasure: what belongs to the subjects, up to where their old life goes, and the entries of the ledger
that keep it away from then on. Bytes stay where they are until they are removed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.backfill.source_readers import source_readers
from ingest.config import Pipeline
from ingest.erasure.subject_search import Search, counted
from ingest.errors import ConfigError
from ingest.lakehouse.bronze import Offsets
from ingest.lakehouse.bronze_summary import BronzeSummary, LogEnd, offsets_of
from ingest.lakehouse.history_facts import HistoryFacts
from ingest.pipeline.composition import rules_of
from ingest.pipeline.shredding import shred
from ingest.sources.kafka_admin import KafkaAdmin
from ingest.spark.local_rows import local_rows
from ingest.suppression.cutoff import WHOLE_SOURCE, Cutoff
from ingest.suppression.key_file import LedgerKeys, read_keys
from ingest.suppression.ledger import KEYS, REQUESTED, Ledger, LedgerEntry

_SUBJECT = re.compile(r"([^:\s]+):(.+)")


@dataclass(frozen=True)
class Named:
    """A subject, as somebody says it: `member:42`."""

    kind: str
    key: str

    def __repr__(self) -> str:
        return f"Named({self.kind})"

    @classmethod
    def parsed(cls, text: str) -> Named:
        """Raises ConfigError, which shows nothing of the text."""
        found = _SUBJECT.fullmatch(text.strip())
        if found is None:
            raise ConfigError("a subject is not named by its kind and its key", "write it as member:42")
        return cls(found[1], found[2])


@dataclass(frozen=True)
class Request:
    """An erasure that is asked for: its entry in the ledger, or the one that it would have. `subject`: as it was
    named; a delete names none."""

    entry: LedgerEntry
    subject: Named | None = None


@dataclass(frozen=True)
class Asked:
    """What was found of all subjects, by place and table; the requests; and the `KEYS` that they fence."""

    counts: Mapping[tuple[str, str], int]
    requests: Sequence[Request]
    keys: DataFrame


def found(
    spark: SparkSession, pipeline: Pipeline, subjects: Sequence[Named], reason: str | None, cutoff: Cutoff
) -> Asked:
    """What asking for the erasure of these subjects concerns. Writes nothing."""
    return found_of(spark, pipeline, requested(pipeline, ((subject, reason) for subject in subjects), cutoff))


def requested(pipeline: Pipeline, named: Iterable[tuple[Named, str | None]], cutoff: Cutoff) -> list[Request]:
    """A request for each subject and why it is asked for. Raises ConfigError where no table has such subjects."""
    keys, subjects = ledger_keys(pipeline), rules_of(pipeline).subjects
    requests = []
    for subject, reason in named:
        table = subjects.root(subject.kind)
        entry = entry_of(subject.kind, table, keys.hash(table, subject.key), keys, reason, cutoff)
        requests.append(Request(entry, subject))
    return requests


def found_of(spark: SparkSession, pipeline: Pipeline, requests: Sequence[Request]) -> Asked:
    """What these requests concern."""
    keys = ledger_keys(pipeline)
    rows = [{name: getattr(r.entry, name) for name in KEYS.names} for r in requests]
    own = local_rows(spark, rows, KEYS)
    every, belongings = [own], []
    for one in Search(spark, pipeline, keys).belongings(own):
        named = {"table": F.lit(one.table), "key_version": F.lit(keys.newest).cast("int")}
        every.append(one.keys.withColumns(named).select(*KEYS.names))
        belongings.append(one)
    return Asked(counted(belongings), requests, reduce(DataFrame.unionByName, every).distinct())


def ask(spark: SparkSession, pipeline: Pipeline, asked: Asked) -> list[LedgerEntry]:
    """The first durable step: from here on no merge lets the old life of the subjects in. Then their data keys are
    destroyed; where that fails, the removal does it."""
    ledger = Ledger(spark, pipeline.layout.ledger, pipeline.name)
    entries = ledger.append([r.entry for r in asked.requests], asked.keys)
    shred(spark, pipeline)
    return entries


def written_by_now(spark: SparkSession, pipeline: Pipeline, topics: bool) -> Cutoff:
    """All that was ever read; with `topics`, also all that they hold by now. Raises Unreachable and SourceRefused."""
    offsets: Offsets = {}
    ends: list[LogEnd] = []
    rules, history = rules_of(pipeline), HistoryFacts(spark, pipeline.layout.known_history)
    for reader in source_readers(spark, pipeline):
        bronze = reader.bronze(spark, rules)
        read = BronzeSummary(bronze, reader.writer, history, rules.view, keeps=False).log_ends(bronze.last_batch())
        if reader.from_topics:
            _raise_to(offsets, offsets_of(read))
        ends += read
    if topics:
        admin = KafkaAdmin(pipeline.source.kafka)
        ends_there = admin.end_offsets(admin.topics(pipeline.source.topics, pipeline.source.topic_pattern))
        _raise_to(offsets, ends_there)
    sequences = {table for table, _ in rules.naming.sequences}
    positions: dict[str, tuple[int, ...]] = {}
    for end in ends:
        if end.placed is not None:
            table = end.table if end.table in sequences else WHOLE_SOURCE
            positions[table] = max(end.placed, positions.get(table, end.placed))
    return Cutoff(offsets, positions)


def _raise_to(offsets: Offsets, ends: Mapping[str, Mapping[int, int]]) -> None:
    for topic, partitions in ends.items():
        known = offsets.setdefault(topic, {})
        known.update({p: max(end, known.get(p, 0)) for p, end in partitions.items()})


def ledger_keys(pipeline: Pipeline) -> LedgerKeys:
    """Raises ConfigError where the pipeline's file names none, or the file is none."""
    if pipeline.privacy is None:
        raise ConfigError(
            f"nothing in pipeline {pipeline.name} leads to a subject",
            "say whose rows are whose, tables: {…: {subject: …}}, and name a key_file",
        )
    return read_keys(pipeline.privacy.key_file)


def entry_of(kind: str, table: str, key_hash: str, keys: LedgerKeys, reason: str | None, cutoff: Cutoff) -> LedgerEntry:
    """A new request. `key_hash`: of the subject's key in its table, under the newest secret."""
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
