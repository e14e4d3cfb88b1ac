"""Backfills: a part of history merged again, into tables that a stream may be writing meanwhile.

The merge ignores events that it has applied before, and an older event never wins over a newer one, so a backfill may
deliver any events, repeatedly. It has its own accounts, by which an interrupted backfill continues where it stopped.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, get_args

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from ingest.changelog.point import Point, within
from ingest.config import Pipeline
from ingest.errors import ConfigError
from ingest.lakehouse.accounts import Accounts, SetAside
from ingest.lakehouse.backfills import BackfillRun, Backfills
from ingest.lakehouse.bronze import Bronze
from ingest.lakehouse.bronze.window import BronzeWindow
from ingest.lakehouse.catalog import Catalog
from ingest.loop.capture import Capture
from ingest.loop.merge import Merge
from ingest.pipeline.composition import (
    Progress,
    archive_import_of,
    bronze_of,
    decoding_of,
    landing_of,
    layout_of,
    rules_of,
)
from ingest.pipeline.shredding import sealing_of
from ingest.sources.archive import ArchiveSource
from ingest.sources.contract import ChangelogSource
from ingest.sources.dump import Dump, DumpSource
from ingest.sources.kafka import KafkaSource
from ingest.sources.kafka_admin import KafkaAdmin

HistorySource = Literal["bronze", "archive", "kafka", "dump"]


@dataclass(frozen=True)
class BackfillRequest:
    """The window of a backfill: events of `source` from `begin` on and before `end`. `tables`: all if empty. `dump`:
    what to read if `source` is "dump"."""

    source: HistorySource = "bronze"
    begin: Point | None = None
    end: Point | None = None
    tables: tuple[str, ...] = ()
    dump: Dump | None = None

    def __post_init__(self) -> None:
        if self.source not in ("bronze", "archive") and self._is_by_position:
            raise ConfigError(
                f"a backfill from {self.source} takes only times as --from and --to",
                "give times; positions are for bronze and the archive",
            )

    @property
    def _is_by_position(self) -> bool:
        return any(p is not None and p.time is None for p in (self.begin, self.end))

    @property
    def captures_all(self) -> bool:
        """Returns True if everything that the source holds is captured, whether it is merged or not. A window of
        positions needs that: only the events themselves tell their positions."""
        return self.source != "bronze" and (self._is_by_position or (self.begin is None and self.end is None))

    @property
    def event_filter(self) -> Column | None:
        """Returns the filter of the captured events that are merged; None for all."""
        if self.source == "bronze" or self._is_by_position:
            return within(self.begin, self.end)
        return None

    def to_json(self) -> dict[str, Any]:
        """Returns the request as it is stored in the registry of backfills."""
        begin, end = (p.text if p is not None else None for p in (self.begin, self.end))
        request: dict[str, Any] = {"source": self.source, "from": begin, "to": end, "tables": sorted(self.tables)}
        if self._is_by_position and (epochs := {p.epoch for p in (self.begin, self.end) if p is not None and p.epoch}):
            request["epoch"] = max(epochs)
        return request if self.dump is None else request | {"dump": self.dump.path, "at": self.dump.at.text}


def event_filter_of(request_json: Mapping[str, Any]) -> Column | None:
    """Returns the filter of the events that a backfill merges, from its stored request; None for all."""
    if request_json["source"] not in get_args(HistorySource):
        return None
    begin, end = (
        text and Point.parse(text, request_json.get("epoch", 0))
        for text in (request_json.get("from"), request_json.get("to"))
    )
    return BackfillRequest(request_json["source"], begin or None, end or None).event_filter


class Backfill:
    """One backfill of a pipeline: continues the unfinished one of an equal request, or begins a new one."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, request: BackfillRequest) -> None:
        layout, batch = pipeline.layout, pipeline.batch
        source = None if request.source == "bronze" else _source(spark, pipeline, request)
        self._registry = Backfills(spark, layout.backfills, pipeline.name)
        merged = Accounts(spark, layout.accounts, pipeline.name).merged_through()
        request_json = request.to_json()
        if isinstance(source, DumpSource):
            request_json["types"] = {request.tables[0]: source.types}
        self.run: BackfillRun = self._registry.start(request_json, merged)
        only = frozenset(request.tables) or None
        rules = replace(rules_of(pipeline), only=only, keyless=False, stops_at_restart=False)
        if "types" in request_json:
            rules = replace(rules, columns=rules.columns | request_json["types"], columns_as_stored=True)
        self._capture: Capture | None = None
        if source is None:
            path = layout.bronze(pipeline.name)
            self._bronze: Bronze = BronzeWindow(
                spark, path, request.event_filter, self.run.upto_batch, rules.epochs, rules.names, rules.tuning
            )
        else:
            path = layout.backfilled(pipeline.name, self.run.number)
            self._bronze = Bronze(spark, path, rules.epochs, rules.names, rules.tuning)
            source.pin_end()
            seal = sealing_of(pipeline)
            imports_files = request.source == "archive" and request.captures_all
            archive_import = archive_import_of(spark, pipeline, self._bronze, rules) if imports_files else None
            self._capture = Capture(
                spark,
                source,
                self._bronze,
                rules.naming,
                batch.max_events,
                seal=seal,
                archive_import=archive_import,
                decoding=decoding_of(spark, pipeline),
                landing=landing_of(spark, pipeline, rules),
            )
        slice_events, writer = batch.merged_at_once, self.run.writer
        self._merging = partial(Merge, spark, pipeline.name, layout, rules, slice_events=slice_events, writer=writer)
        self._window = partial(
            BronzeWindow,
            spark,
            chosen=request.event_filter,
            epochs=rules.epochs,
            names=rules.names,
            tuning=rules.tuning,
        )
        # A filter of positions applies to all captured events, so merging waits for the last capture.
        waits_for_capture = self._capture is not None and request.event_filter is not None
        self._merge = None if waits_for_capture else self._merging(bronze=self._bronze)
        self.done = False
        """True once every event of the window is merged or its table is set aside."""

    def __enter__(self) -> Backfill:
        return self

    def __exit__(self, *_: object) -> None:
        """Waits for the merge's background threads."""
        if self._merge is not None:
            self._merge.close()

    def step(self) -> Progress:
        """Captures and merges one slice."""
        started = time.monotonic()
        captured = self._capture.step() if self._capture else 0
        last = self._capture.captured.batch if self._capture else self._bronze.last_batch()
        if self._merge is None:
            if captured:
                return Progress(captured, [], time.monotonic() - started)
            self._merge = self._merging(bronze=self._window(path=self._bronze.folder, through_batch=last))
        more = self._capture is not None and self._capture.behind > 0
        progress = Progress(captured, self._merge.step(last, more), time.monotonic() - started)
        # A slice may hold no event of the window, so its accounts don't tell the end.
        self.done = not captured and self._merge.merged >= last and not self._merge.catches_up
        if self.done and not self.set_aside:
            self._registry.end(self.run)
        return progress

    @property
    def set_aside(self) -> Mapping[str, SetAside]:
        """Returns the tables that could not be merged, by name. Repeating the backfill tries them again."""
        return self._merge.set_aside if self._merge else {}


def planned(spark: SparkSession, pipeline: Pipeline, request: BackfillRequest) -> Mapping[str, int]:
    """Returns the number of events per table that a backfill from bronze would read; for another source, the maximum
    number of records per topic."""
    if request.source == "bronze":
        merged = Accounts(spark, pipeline.layout.accounts, pipeline.name).merged_through()
        in_window = within(request.begin, request.end) & F.col("source_table").isNotNull()
        rows = bronze_of(spark, pipeline).between(0, merged).where(in_window)
        rules = replace(rules_of(pipeline), only=frozenset(request.tables) or None)
        counts = rows.groupBy("source_table").count().orderBy("source_table").collect()  # a row per table
        return {r["source_table"]: r["count"] for r in counts if rules.takes(r["source_table"])}
    span = _source(spark, pipeline, request).pending({}, 1 << 62)
    return {} if span is None else {t: sum(e - span.start[t][p] for p, e in ps.items()) for t, ps in span.end.items()}


def _source(spark: SparkSession, pipeline: Pipeline, request: BackfillRequest) -> ChangelogSource:
    begin, end = (None if p is None or request.captures_all else p.time for p in (request.begin, request.end))
    if request.dump is not None:
        table_schema = {
            e.table_schema.table: e.table_schema for e in Catalog(spark, pipeline.layout.tables).entries(pipeline.name)
        }
        return DumpSource(spark, request.dump, table_schema.get(request.dump.table), rules_of(pipeline).primary_keys)
    if request.source == "archive":
        return ArchiveSource(layout_of(spark, pipeline, windowed=begin is not None or end is not None), begin, end)
    settings = pipeline.source
    admin = KafkaAdmin(settings.kafka)
    topics = admin.topics(settings.topics, settings.changelog_pattern)
    start = admin.beginning_offsets(topics) if begin is None else admin.offsets_at(topics, begin)
    until = admin.end_offsets(topics) if end is None else admin.offsets_at(topics, end)
    return KafkaSource(settings.kafka, settings.topics, settings.changelog_pattern, start, until)
