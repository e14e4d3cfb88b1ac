"""The lag of silver behind its source."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import functions as F

from ingest.config import Pipeline
from ingest.errors import IngestError
from ingest.lakehouse.bronze import Bronze
from ingest.sources.contract import Offsets
from ingest.sources.kafka_admin import KafkaAdmin, lag

_ANSWER_SECONDS = 5.0


@dataclass(frozen=True)
class SourceLag:
    """`records`: offsets that Kafka holds and bronze doesn't. `seconds`: an upper bound of silver's lag; 0 if nothing
    waits. Each is None if it isn't known; `unknown` says why."""

    records: int | None = None
    seconds: float | None = None
    unknown: str | None = None


def lag_of(bronze: Bronze, pipeline: Pipeline, merged: int) -> SourceLag:
    """Asks Kafka for the offsets beyond bronze. `merged`: the last capture batch in silver."""
    captured = bronze.captured()
    try:
        records = _uncaptured(pipeline, captured.offsets)
    except IngestError as error:
        return SourceLag(unknown=error.problem)
    if records < 0:
        return SourceLag(unknown="a topic is shorter than what bronze holds of it: it was deleted and created again")
    if not records and captured.batch <= merged:
        return SourceLag(0, 0.0)
    written = _newest_merged(bronze, merged)
    if written is None:
        return SourceLag(records, unknown="nothing is merged yet")
    # Every waiting record was written after the newest merged one.
    return SourceLag(records, max(0.0, round((datetime.now(UTC) - written).total_seconds(), 3)))


def _uncaptured(pipeline: Pipeline, captured: Offsets) -> int:
    """Returns the number of offsets that wait at the source; negative if a partition ends before what was captured."""
    source = pipeline.source
    admin = KafkaAdmin(source.kafka, _ANSWER_SECONDS)
    topics = admin.topics(source.topics, source.changelog_pattern)
    begin, end = admin.beginning_offsets(topics), admin.end_offsets(topics)
    reached = {topic: {**partitions, **captured.get(topic, {})} for topic, partitions in begin.items()}
    behind = [count for partitions in lag(end, reached).values() for count in partitions.values()]
    return min(behind) if min(behind, default=0) < 0 else sum(behind)


def _newest_merged(bronze: Bronze, merged: int) -> datetime | None:
    """Returns the broker's timestamp of the newest record in the last merged batch."""
    if not merged:
        return None
    row = bronze.between(merged - 1, merged).agg(F.max(F.unix_millis("timestamp")).alias("at")).first()
    return None if row is None or row["at"] is None else datetime.fromtimestamp(row["at"] / 1000, UTC)
