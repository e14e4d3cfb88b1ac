"""Composes a pipeline from its configuration, and runs its loop. Only the trigger differs between modes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from pyspark.sql import SparkSession

from ingest.archive import Layout, ManifestArchive, ObjectStore
from ingest.archive.connect import ConnectorArchive, TopicSelection
from ingest.batches.record_decoding import RecordDecoding
from ingest.batches.rules import Rules
from ingest.changelog.accounting import Account
from ingest.changelog.forms import Form
from ingest.changelog.naming import Naming
from ingest.changelog.origin import TableNaming
from ingest.config import Archive, Pipeline
from ingest.config.schema_changes import SchemaSettings
from ingest.errors import ConfigError
from ingest.evolution.policies import Limits
from ingest.evolution.schema_policy import OnChange, SchemaPolicy
from ingest.lakehouse.accounts import SetAside
from ingest.lakehouse.bronze import Bronze
from ingest.lakehouse.registered_schemas import RegisteredSchemas
from ingest.loop.capture import Capture
from ingest.loop.import_files import ArchiveImport
from ingest.loop.merge import Merge
from ingest.loop.suppression.landing import Landing
from ingest.pipeline.shredding import sealing_of
from ingest.shredding.owners import shredded_of
from ingest.sources.captured import is_remote
from ingest.sources.contract import ChangelogSource
from ingest.sources.kafka import KafkaSource
from ingest.sources.registry import SchemaRegistry
from ingest.sources.source_catalog import SourceCatalog
from ingest.suppression.subjects import subjects_of
from ingest.values.types import OutOfRange

Part = Literal["capture", "merge"]
BOTH: tuple[Part, ...] = ("capture", "merge")


def rules_of(pipeline: Pipeline) -> Rules:
    """Returns the pipeline file's rules for its changelog."""
    source = pipeline.source
    naming = Naming(
        topic_tables=tuple(source.topic_tables.items()),
        forms=tuple((topic, Form(form)) for topic, form in source.record_forms.items()),
        heartbeat_prefix=source.debezium.heartbeat_prefix,
        transaction_suffix=source.debezium.topic_transaction,
        sequences=tuple((t, s.sequence) for t, s in pipeline.tables.items() if s.sequence is not None),
        names=TableNaming(source.table_names, frozenset(source.topic_tables)),
        event_bytes=pipeline.limits.event_bytes,
    )
    policies = {t: policy_of(pipeline.schema_settings.of_table(s.schema_settings)) for t, s in pipeline.tables.items()}
    keys = {t: s.primary_key for t, s in pipeline.tables.items() if s.primary_key is not None}
    columns = {t: s.columns for t, s in pipeline.tables.items()}
    return Rules(
        naming=naming,
        primary_keys=keys,
        columns=columns,
        declared=columns,
        include_tables=source.include_tables,
        exclude_tables=source.exclude_tables,
        placeholder=source.debezium.unavailable_value_placeholder,
        fold_case=source.case_insensitive,
        column_renames={t: s.names if policies[t].follows_renames else s.rename for t, s in pipeline.tables.items()},
        declared_renames={t: s.renames for t, s in pipeline.tables.items() if policies[t].follows_renames},
        whole_snapshots=source.snapshots == "whole",
        append_only=frozenset(t for t, s in pipeline.tables.items() if s.append_only),
        history=frozenset(t for t, s in pipeline.tables.items() if s.history),
        personal={t: frozenset(s.personal) for t, s in pipeline.tables.items() if s.personal},
        subjects=subjects_of(pipeline.tables),
        masks={t: s.masks for t, s in pipeline.tables.items() if s.subject and s.masks},
        shredded=shredded_of(pipeline.tables),
        ledger=pipeline.layout.ledger,
        key_file=pipeline.privacy.key_file if pipeline.privacy else None,
        suppresses_later_reads=pipeline.privacy is not None and pipeline.privacy.snapshot_reads == "suppress",
        epochs=source.epochs,
        renamed=dict(source.renamed),
        stops_at_restart=source.restarts == "stop",
        stops_at_two_partitions=source.keys_in_two_partitions == "stop",
        times_out_of_range=OutOfRange(source.times_out_of_range),
        tuning=pipeline.tuning,
        policy=policy_of(pipeline.schema_settings),
        policies=policies,
        limits=Limits(
            *(getattr(pipeline.limits, name) for name in ("columns", "new_columns_per_day", "nesting_depth"))
        ),
        source_catalog=None if source.database is None else SourceCatalog(source.database.get_secret_value()),
    )


def policy_of(settings: SchemaSettings) -> SchemaPolicy:
    """Returns the policy that settings describe."""
    include = None if settings.include is None else frozenset(settings.include)
    return SchemaPolicy(OnChange(settings.on_change), include, frozenset(settings.exclude))


def source_of(pipeline: Pipeline) -> KafkaSource:
    """Returns the pipeline's Kafka source."""
    source = pipeline.source
    control = source.control_topics
    return KafkaSource(
        source.kafka,
        source.topics,
        source.changelog_pattern,
        source.start_offsets,
        topic_prefix=source.debezium.topic_prefix,
        record_topic=None if control is None else control.resyncs,
    )


def decoding_of(spark: SparkSession, pipeline: Pipeline) -> RecordDecoding | None:
    """Returns the decoding of the pipeline's records; None without a schema registry."""
    settings = pipeline.source.registry
    if settings is None:
        return None
    kept = RegisteredSchemas(spark, pipeline.layout.registered_schemas, pipeline.name)
    registry = SchemaRegistry(settings.url, settings.login, settings.ca_file)
    return RecordDecoding(kept, registry, settings.prefix_ids, settings.unreadable == "stop")


def archive_of(pipeline: Pipeline) -> ObjectStore:
    """Returns the object store of the pipeline's archive. Raises ConfigError if it has none, or a connector writes
    it."""
    archive = _archive(pipeline)
    if archive.layout != "ingest":
        raise ConfigError(
            f"the archive of pipeline {pipeline.name} is written by the sink connector of {archive.layout}",
            "let the connector continue, or name another archive in the pipeline's file",
        )
    return _store(archive)


def layout_of(spark: SparkSession, pipeline: Pipeline, windowed: bool = False) -> Layout[Any]:
    """Returns the pipeline's archive for reading. `windowed`: True if only records of certain times are wanted.

    Raises ConfigError if there is none, or it can't select by what is wanted.
    """
    archive = _archive(pipeline)
    if archive.layout == "ingest":
        return ManifestArchive(_store(archive), pipeline.name)
    source = pipeline.source
    tables = frozenset(t for t, s in pipeline.tables.items() if s.primary_key is not None or s.append_only)
    selection = TopicSelection(source.topics, source.topic_pattern, tables, dict(source.topic_tables))
    timed = windowed or bool(source.epochs)
    return ConnectorArchive(spark, _store(archive), archive.layout, selection, archive.gaps == "ignore", timed)


def _archive(pipeline: Pipeline) -> Archive:
    if pipeline.archive is None:
        raise ConfigError(
            f"pipeline {pipeline.name} has no archive", "name one in its file: archive: {uri: s3://bucket/prefix}"
        )
    return pipeline.archive


def _store(archive: Archive) -> ObjectStore:
    return ObjectStore(archive.uri, dict(archive.s3))


def bronze_of(spark: SparkSession, pipeline: Pipeline) -> Bronze:
    """Returns the pipeline's bronze table."""
    rules = rules_of(pipeline)
    return Bronze(spark, pipeline.layout.bronze(pipeline.name), rules.epochs, rules.names, rules.tuning)


def landing_of(spark: SparkSession, pipeline: Pipeline, rules: Rules) -> Landing | None:
    """Returns what empties events of erased subjects as they are captured. None for a pipeline without subjects."""
    return Landing(spark, pipeline.name, pipeline.layout, rules) if rules.subjects.tables else None


def archive_import_of(spark: SparkSession, pipeline: Pipeline, bronze: Bronze, rules: Rules) -> ArchiveImport | None:
    """Returns the import of archived objects into bronze as its data files. None if that isn't possible: a sink
    connector wrote them, bronze is in remote storage, or events have to be encrypted first."""
    archive = _archive(pipeline)
    if archive.layout != "ingest" or pipeline.shreds or is_remote(bronze.folder):
        return None
    # The manifests' lowest and highest positions hold only if the pipeline's epochs don't change positions.
    counted = not rules.epochs and rules.names.is_unqualified
    return ArchiveImport(spark, _store(archive), pipeline.name, bronze, rules.naming.digest, counted)


@dataclass(frozen=True)
class Progress:
    """One turn of the loop: the number of captured records, the accounts of the merged events, and the lag."""

    captured: int
    accounts: Sequence[Account]
    seconds: float = 0.0
    """The duration, including the earlier turns that captured what this one merged."""
    behind: int | None = None
    """The number of offsets that the source holds and bronze doesn't; None if it wasn't asked."""
    newest: datetime | None = None
    """When the newest merged change was made at its source."""

    @property
    def idle(self) -> bool:
        """Returns True if nothing was captured or merged."""
        return not self.captured and not self.accounts


class Run:
    """Capture and merge of one pipeline in one process, or one of both.

    After an exception in a step its state is undefined: make a new one.
    """

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        parts: Sequence[Part] = BOTH,
        source: ChangelogSource | None = None,
        imports_files: bool = False,
    ) -> None:
        """`source`: captured in place of the one in the pipeline's file. `imports_files`: True if `source` is the
        pipeline's whole archive, whose objects may become bronze's files."""
        rules = rules_of(pipeline)
        self._poll = pipeline.batch.poll_seconds
        self._capture = self._merge = None
        self._capturing = 0.0
        bronze = bronze_of(spark, pipeline)
        if "capture" in parts:
            limit = pipeline.batch.max_events
            stops = pipeline.source.recreated_topics == "stop"
            seal = sealing_of(pipeline)
            archive_import = archive_import_of(spark, pipeline, bronze, rules) if imports_files else None
            captured_source = source or source_of(pipeline)
            merges = "merge" in parts
            decoding = decoding_of(spark, pipeline)
            self._capture = Capture(
                spark,
                captured_source,
                bronze,
                rules.naming,
                limit,
                stops,
                seal,
                archive_import,
                merges,
                decoding,
                landing_of(spark, pipeline, rules),
            )
        if "merge" in parts:
            self._merge = Merge(spark, pipeline.name, pipeline.layout, rules, bronze, pipeline.batch.merged_at_once)

    @property
    def position(self) -> dict[str, int]:
        """Returns the last batch of bronze (`captured`) and of silver (`merged`), for the parts that run here."""
        found = {"captured": self._capture.captured.batch} if self._capture else {}
        return found | ({"merged": self._merge.merged} if self._merge else {})

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        """Waits for the merge's background threads."""
        if self._merge is not None:
            self._merge.close()

    @property
    def set_aside(self) -> Mapping[str, SetAside]:
        """Returns the tables that can't be merged as they are, by name."""
        return self._merge.set_aside if self._merge else {}

    @property
    def merge(self) -> Merge | None:
        """Returns the part that merges; None if it doesn't run here."""
        return self._merge

    @property
    def fault(self) -> BaseException | None:
        """Returns the last exception raised for a table that is set aside."""
        return self._merge.fault if self._merge else None

    def step(self) -> Progress:
        """Runs one batch of each part. While many records wait at the source, captured batches are merged in larger
        slices."""
        started = time.monotonic()
        captured = self._capture.step() if self._capture else 0
        known = self._capture.captured.batch if self._capture else None
        behind = self._capture.behind if self._capture else None
        accounts = self._merge.step(known, more=bool(behind)) if self._merge else []
        newest = self._merge.newest if self._merge else None
        seconds = time.monotonic() - started
        if accounts:
            seconds, self._capturing = seconds + self._capturing, 0.0
        else:
            self._capturing += seconds if captured and self._merge else 0.0
        return Progress(captured, accounts, seconds, behind, newest)

    def available_now(self, stop: threading.Event, report: Callable[[Progress], None]) -> None:
        """Runs until everything that is available now is merged, or until `stop`; the current batch is finished either
        way."""
        if self._capture:
            self._capture.pin_end()
        while not stop.is_set():
            progress = self.step()
            if progress.idle:
                return
            report(progress)

    def continuous(
        self,
        stop: threading.Event,
        report: Callable[[Progress], None],
        between_batches: Callable[[], None] = lambda: None,
    ) -> None:
        """Runs until `stop`; the current batch is finished."""
        while not stop.is_set():
            progress = self.step()
            between_batches()
            if progress.idle:
                stop.wait(self._poll)
            else:
                report(progress)
