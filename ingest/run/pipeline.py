"""A pipeline put together from its configuration, and the loop that drives it. Only the trigger differs by mode."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pyspark.sql import SparkSession

from ingest.changelog.accounting import Account
from ingest.changelog.envelope import Naming
from ingest.config import Pipeline
from ingest.run.capture import Capture
from ingest.run.merge import Merge
from ingest.run.rules import Rules
from ingest.sources.kafka import KafkaSource
from ingest.tables.bronze import Bronze

Part = Literal["capture", "merge"]
BOTH: tuple[Part, ...] = ("capture", "merge")


def rules_of(pipeline: Pipeline) -> Rules:
    """What the pipeline file says about its changelog."""
    source = pipeline.source
    naming = Naming(
        topic_tables=tuple(source.topic_tables.items()),
        heartbeat_prefix=source.debezium.heartbeat_prefix,
        transaction_suffix=source.debezium.topic_transaction,
        sequences=tuple((t, s.sequence) for t, s in pipeline.tables.items() if s.sequence is not None),
    )
    keys = {t: s.primary_key for t, s in pipeline.tables.items() if s.primary_key is not None}
    return Rules(
        naming=naming,
        primary_keys=keys,
        columns={t: s.columns for t, s in pipeline.tables.items()},
        include_tables=source.include_tables,
        exclude_tables=source.exclude_tables,
        placeholder=source.debezium.unavailable_value_placeholder,
        fold_case=source.case_insensitive,
        whole_snapshots=source.snapshots == "whole",
        append_only=frozenset(t for t, s in pipeline.tables.items() if s.append_only),
        epochs=source.epochs,
        stops_at_restart=source.restarts == "stop",
        stops_at_two_partitions=source.keys_in_two_partitions == "stop",
    )


def source_of(pipeline: Pipeline) -> KafkaSource:
    """The pipeline's changelog."""
    source = pipeline.source
    return KafkaSource(source.kafka, source.topics, source.topic_pattern, source.start_offsets)


@dataclass(frozen=True)
class Progress:
    """One turn of the loop: how many records were captured, what became of those merged, and how far it is behind."""

    captured: int
    accounts: Sequence[Account]
    seconds: float = 0.0
    """How long it took."""
    behind: int | None = None
    """How many offsets the source holds that are not captured; None where nobody has asked."""
    newest: datetime | None = None
    """When the newest change that is merged was made at its source."""

    @property
    def idle(self) -> bool:
        return not self.captured and not self.accounts


class Run:
    """Capture and merge of one pipeline in one process, or either of them alone."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, parts: Sequence[Part] = BOTH) -> None:
        layout, rules = pipeline.layout, rules_of(pipeline)
        self._poll = pipeline.batch.poll_seconds
        self._capture = self._merge = None
        bronze = Bronze(spark, layout.bronze(pipeline.name), rules.epochs)
        if "capture" in parts:
            limit = pipeline.batch.max_events
            stops = pipeline.source.recreated_topics == "stop"
            self._capture = Capture(spark, source_of(pipeline), bronze, rules.naming, limit, stops)
        if "merge" in parts:
            self._merge = Merge(spark, pipeline.name, layout, rules, bronze, pipeline.batch.max_events)

    def step(self) -> Progress:
        """One batch of each part."""
        begun = time.monotonic()
        captured = self._capture.step() if self._capture else 0
        known = self._capture.captured.batch if self._capture else None
        accounts = self._merge.step(known) if self._merge else []
        behind = self._capture.behind if self._capture else None
        newest = self._merge.newest if self._merge else None
        return Progress(captured, accounts, time.monotonic() - begun, behind, newest)

    def available_now(self, stop: threading.Event, report: Callable[[Progress], None]) -> None:
        """Until all that is there now is merged, or until `stop`: the batch in hand is finished either way."""
        if self._capture:
            self._capture.until_now()
        while not stop.is_set():
            progress = self.step()
            if progress.idle:
                return
            report(progress)

    def continuous(self, stop: threading.Event, report: Callable[[Progress], None]) -> None:
        """Until `stop`; the batch in hand is finished."""
        while not stop.is_set():
            progress = self.step()
            if progress.idle:
                stop.wait(self._poll)
            else:
                report(progress)
