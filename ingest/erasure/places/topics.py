"""Compacted topics of the source, which keep the last record of each key forever."""

from __future__ import annotations

from collections.abc import Iterable

from ingest.config import Pipeline
from ingest.erasure.compacted_topics import CompactedTopics
from ingest.erasure.places import BRONZE, TOPICS
from ingest.erasure.places.place import Record, Removed
from ingest.erasure.removal_run import RemovalRun
from ingest.suppression.ledger import last_state_number


def remove(run: RemovalRun) -> Removed:
    """Writes tombstones for the events emptied in bronze, unless none was emptied since the last time."""
    context = run.context
    entries = list(context.ledger.entries())
    if last_state_number(entries, TOPICS) > last_state_number(entries, BRONZE):
        return Removed({"tombstones": 0}, Record.NEVER)
    topics = CompactedTopics(context.spark, context.pipeline)
    return Removed({"tombstones": topics.write_tombstones(context.emptied_events("timestamp"))}, Record.ALWAYS)


def outside(pipeline: Pipeline) -> Iterable[str]:
    return [f"Kafka at {pipeline.source.kafka['bootstrap.servers']}"]
