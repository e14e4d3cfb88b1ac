"""What Spark, Kafka and Delta say when something fails, as an error with a remedy."""

from __future__ import annotations

import re

from ingest import errors
from ingest.config import Pipeline
from ingest.errors import Contended, IngestError, SourceRefused, Unreachable

_FROM_A_WORKER = re.compile(r"ingest\.errors\.(\w+): (.+) → (.+)")


class RunFailed(IngestError):
    """The engine failed in a way that has no better name."""


def explained(error: BaseException, pipeline: Pipeline) -> IngestError:
    """The error for people. The engine's own text is left to `--debug`: it may quote rows and literals."""
    text = str(error)
    name = type(error).__name__
    if said := _FROM_A_WORKER.search(text):
        # One of our own, raised where Spark's workers run: Spark hands it on as text.
        kind: type[IngestError] = getattr(errors, said[1], RunFailed)
        return kind(said[2], said[3])
    if "OffsetOutOfRange" in text or "data loss" in text.lower() or "KAFKA_DATA_LOSS" in text:
        return SourceRefused(
            f"pipeline {pipeline.name}: Kafka no longer holds offsets that bronze has not captured",
            "lengthen the topic's retention, then capture from a fresh snapshot or an archive under a new name",
        )
    if "TimeoutException" in text or "Connection refused" in text:
        return Unreachable(
            f"pipeline {pipeline.name}: Kafka at {pipeline.source.kafka.get('bootstrap.servers')} does not answer",
            "see whether the brokers run; the same command goes on where it stood",
        )
    if "Concurrent" in text and "Exception" in text:
        return Contended(
            f"pipeline {pipeline.name}: another writer changes the same tables",
            "run one writer per pipeline; the same command goes on where it stood",
        )
    return RunFailed(
        f"pipeline {pipeline.name}: the engine failed with {name}",
        "run it again with --debug for the whole trace; nothing that was merged is lost",
    )
