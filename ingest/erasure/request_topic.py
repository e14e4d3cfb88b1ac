"""Erasure requests in a Kafka topic. Each is requested once, however often it is read: the ledger knows which were."""

from __future__ import annotations

from dataclasses import dataclass, replace
from uuid import UUID, uuid5

from pyspark.sql import SparkSession

from ingest.config import Pipeline
from ingest.erasure.request import ErasureRequest, SubjectId, current_cutoff, new_requests, subject_of_json
from ingest.errors import ConfigError
from ingest.pipeline.composition import rules_of
from ingest.sources.kafka_records import read_records
from ingest.suppression.ledger import REQUESTED, Ledger

_NAMESPACE = UUID("5bd4fb5e-79e8-4c7b-8c0d-6a0f4f1c2f4e")


@dataclass(frozen=True)
class UnreadableRequest:
    """A record that is no request. `why` shows nothing of its content."""

    partition: int
    offset: int
    why: str


def requests_in_topic(spark: SparkSession, pipeline: Pipeline) -> tuple[list[ErasureRequest], list[UnreadableRequest]]:
    """Returns the requests that are not in the ledger yet, and the records that can't be read."""
    topic = pipeline.privacy.request_topic if pipeline.privacy else None
    if topic is None:
        return [], []
    ledger = Ledger(spark, pipeline.layout.ledger, pipeline.name)
    known = {entry.request for entry in ledger.entries() if entry.kind == REQUESTED}
    subjects_by_request: dict[str, tuple[SubjectId, str | None]] = {}
    unreadable, subjects = [], rules_of(pipeline).subjects
    for record in read_records(pipeline.source.kafka, topic):
        request = str(uuid5(_NAMESPACE, record.id))
        if request in known or record.value is None:
            continue
        try:
            subject, reason = subject_of_json(record.value)
            subjects.root_table(subject.kind)
            subjects_by_request[request] = (subject, reason)
        except ConfigError as error:
            unreadable.append(UnreadableRequest(record.partition, record.offset, error.problem))
    if not subjects_by_request:
        return [], unreadable
    created = new_requests(pipeline, subjects_by_request.values(), current_cutoff(spark, pipeline, topics=True))
    with_ids = [
        replace(created_request, entry=replace(created_request.entry, request=request_id))
        for request_id, created_request in zip(subjects_by_request, created, strict=True)
    ]
    return with_ids, unreadable
