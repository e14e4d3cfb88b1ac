"""Where an erasure does not reach: what remains there, until when, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from ingest.config import Pipeline
from ingest.errors import IngestError
from ingest.sources.kafka_admin import KafkaAdmin

_SECONDS = 3.0
_FOR_EVER = "-1"
_WRITTEN = "which was written"
_BROUGHT = "which the source's delete brings (or an erasure, with privacy: {tombstones_in_topics: true})"
HURRIED = {
    "segment.ms": "1000",
    "max.compaction.lag.ms": "1000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "1000",
    "file.delete.delay.ms": "1000",
}
"""A topic's settings under which what its tombstones delete is gone from the disk within a minute."""


@dataclass(frozen=True)
class Beyond:
    """`until`: when what remains is gone by itself, where that is known."""

    place: str
    what: str
    until: datetime | None = None


def out_of_reach(pipeline: Pipeline, now: datetime) -> list[Beyond]:
    """Of a pipeline's subjects, if all that is to be erased was written by `now`."""
    others = [
        Beyond("the source database", "delete the subject's rows there first: a snapshot brings them as a new life"),
        Beyond("backups and copies elsewhere", "who keeps them has to know of the request"),
    ]
    if pipeline.shreds:
        what = "they open what was shredded, until `ingest rewrap` has run and the older master key is destroyed"
        others.append(Beyond("backups of the key store", what))
    return [*_topics(pipeline, now), *others]


def _topics(pipeline: Pipeline, now: datetime) -> list[Beyond]:
    servers = pipeline.source.kafka["bootstrap.servers"]
    admin = KafkaAdmin(pipeline.source.kafka, timeout=_SECONDS)
    asked = [pipeline.privacy.request_topic] if pipeline.privacy and pipeline.privacy.request_topic else []
    try:
        topics = admin.topics(pipeline.source.topics, pipeline.source.topic_pattern)
        told = admin.properties([*topics, *asked])
    except IngestError as failure:
        return [Beyond(f"topics on {servers}", f"what they keep could not be asked: {failure.problem}")]
    written = pipeline.writes_tombstones
    return [_topic(topic, properties, now, written and topic not in asked) for topic, properties in told.items()]


def _topic(topic: str, said: dict[str, str], now: datetime, written: bool) -> Beyond:
    place = f"topic {topic}"
    if "compact" in said.get("cleanup.policy", ""):
        return Beyond(
            place,
            f"compacted: a null tombstone of each key, {_WRITTEN if written else _BROUGHT}, takes it away when the "
            "cleaner comes by. It leaves the segment that is written alone: to hurry it, alter the topic's "
            f"{', '.join(f'{name}={value}' for name, value in HURRIED.items())}, let one more record come, and take "
            "these settings away once `ingest scan --folder` finds nothing in the broker's log",
        )
    kept = said.get("retention.ms", _FOR_EVER)
    if kept == _FOR_EVER:
        return Beyond(place, "kept for ever: set retention.ms, or delete its records up to where they are archived")
    # The segment that is being written is never deleted.
    longest = timedelta(milliseconds=int(kept) + int(said.get("segment.ms", "0")))
    return Beyond(place, f"goes by itself: retention.ms is {kept}", now + longest)
