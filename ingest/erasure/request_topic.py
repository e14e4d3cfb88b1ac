"""Requests of erasures that others have left in a topic: each once, however often it is read. Which ones were asked is
known from the ledger alone."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid5

from pyspark.sql import SparkSession

from ingest.config import Pipeline
from ingest.erasure.request import Named, Request, requested, written_by_now
from ingest.errors import ConfigError
from ingest.pipeline.composition import rules_of
from ingest.sources.kafka_records import TopicRecord, read_records
from ingest.suppression.ledger import REQUESTED, Ledger

_OF_RECORDS = UUID("5bd4fb5e-79e8-4c7b-8c0d-6a0f4f1c2f4e")


@dataclass(frozen=True)
class Unreadable:
    """A record that is no request. `why` shows nothing of it."""

    partition: int
    offset: int
    why: str


def asked_in_topic(spark: SparkSession, pipeline: Pipeline) -> tuple[list[Request], list[Unreadable]]:
    """Those that the ledger doesn't know yet, and what can't be read."""
    topic = pipeline.privacy.request_topic if pipeline.privacy else None
    if topic is None:
        return [], []
    ledger = Ledger(spark, pipeline.layout.ledger, pipeline.name)
    known = {entry.request for entry in ledger.entries() if entry.kind == REQUESTED}
    named: dict[str, tuple[Named, str | None]] = {}
    unreadable, subjects = [], rules_of(pipeline).subjects
    for record in read_records(pipeline.source.kafka, topic):
        request = str(uuid5(_OF_RECORDS, record.id))
        if request in known or record.value is None:
            continue
        try:
            subject, reason = _parsed(record)
            subjects.root(subject.kind)
            named[request] = (subject, reason)
        except ConfigError as error:
            unreadable.append(Unreadable(record.partition, record.offset, error.problem))
    if not named:
        return [], unreadable
    found = requested(pipeline, named.values(), written_by_now(spark, pipeline, topics=True))
    own = [replace(one, entry=replace(one.entry, request=id_)) for id_, one in zip(named, found, strict=True)]
    return own, unreadable


def _parsed(record: TopicRecord) -> tuple[Named, str | None]:
    try:
        told: Any = json.loads(record.value or b"")
    except ValueError:
        told = None
    if not isinstance(told, dict) or not isinstance(told.get("subject"), str):
        raise ConfigError("it is no JSON object with a subject", 'write {"subject": "member:42", "reason": "…"}')
    reason = told.get("reason")
    return Named.parsed(told["subject"]), reason if isinstance(reason, str) else None
