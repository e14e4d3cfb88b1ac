"""Locations that an erasure doesn't cover: what remains there, until when, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from ingest.config import Pipeline
from ingest.errors import IngestError
from ingest.sources.kafka_admin import KafkaAdmin

_TIMEOUT_SECONDS = 3.0
_FOR_EVER = "-1"
_BY_ERASURE = "which was written"
_BY_DELETE = "which the source's delete writes (or an erasure, with privacy: {tombstones_in_topics: true})"
FAST_COMPACTION = {
    "segment.ms": "1000",
    "max.compaction.lag.ms": "1000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "1000",
    "file.delete.delay.ms": "1000",
}
"""Topic settings under which tombstoned records are removed from disk within a minute."""


@dataclass(frozen=True)
class UncoveredLocation:
    """`until`: when the remaining records expire, if known."""

    place: str
    what: str
    until: datetime | None = None


def uncovered_locations(pipeline: Pipeline, now: datetime) -> list[UncoveredLocation]:
    """Returns the locations that may still hold data of a pipeline's subjects that was written by `now`."""
    others = [
        UncoveredLocation(
            "the source database",
            "delete the subject's rows there first: a later snapshot brings them back as new data",
        ),
        UncoveredLocation("backups and copies elsewhere", "inform their owners of the request"),
    ]
    if pipeline.shreds:
        what = "they decrypt shredded values until `ingest rewrap` has run and the older master key is destroyed"
        others.append(UncoveredLocation("backups of the key store", what))
    return [*_topics(pipeline, now), *others]


def _topics(pipeline: Pipeline, now: datetime) -> list[UncoveredLocation]:
    servers = pipeline.source.kafka["bootstrap.servers"]
    admin = KafkaAdmin(pipeline.source.kafka, timeout=_TIMEOUT_SECONDS)
    request_topics = [pipeline.privacy.request_topic] if pipeline.privacy and pipeline.privacy.request_topic else []
    try:
        topics = admin.topics(pipeline.source.topics, pipeline.source.changelog_pattern)
        properties_by_topic = admin.properties([*topics, *request_topics])
    except IngestError as failure:
        return [UncoveredLocation(f"topics on {servers}", f"their retention could not be read: {failure.problem}")]
    writes_tombstones = pipeline.writes_tombstones
    return [
        _topic(topic, properties, now, writes_tombstones and topic not in request_topics)
        for topic, properties in properties_by_topic.items()
    ]


def _topic(topic: str, properties: dict[str, str], now: datetime, by_erasure: bool) -> UncoveredLocation:
    place = f"topic {topic}"
    if "compact" in properties.get("cleanup.policy", ""):
        written = _BY_ERASURE if by_erasure else _BY_DELETE
        return UncoveredLocation(
            place,
            f"compacted: the log cleaner removes the records of a key after a null tombstone, {written}. It skips the "
            "active segment: to speed it up, set the topic's "
            f"{', '.join(f'{name}={value}' for name, value in FAST_COMPACTION.items())}, produce one more record, and "
            "reset these settings once `ingest scan --folder` finds nothing in the broker's log",
        )
    retention_ms = properties.get("retention.ms", _FOR_EVER)
    if retention_ms == _FOR_EVER:
        return UncoveredLocation(
            place, "kept forever: set retention.ms, or delete its records up to where they are archived"
        )
    # The active segment is never deleted.
    longest = timedelta(milliseconds=int(retention_ms) + int(properties.get("segment.ms", "0")))
    return UncoveredLocation(place, f"expires: retention.ms is {retention_ms}", now + longest)
