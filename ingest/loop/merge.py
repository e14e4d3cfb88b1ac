"""Merges a slice of bronze into the silver tables that it concerns, and accounts for every event."""

from __future__ import annotations

import gc
import logging
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tenacity import RetryCallState

from ingest.batches.deliveries import EarlierReaders, OtherReaders
from ingest.batches.group_stats import Group
from ingest.batches.placement import PlacedTombstones
from ingest.batches.rules import Rules
from ingest.batches.schemas import Schemas
from ingest.batches.table_batch import TableBatch
from ingest.changelog.accounting import Account, by_table
from ingest.changelog.envelope import (
    CLOUD_EVENT,
    CONTROL,
    NO_SEQUENCE,
    NOT_JSON,
    REGISTRY_FRAME,
    TOMBSTONE,
    TOO_LARGE,
    UNKNOWN_OP,
    UNWRAPPED_ROW,
)
from ingest.delta.compaction import FILES_PER_SIZE
from ingest.delta.conflict_retry import retry_on_conflict
from ingest.lakehouse.accounts import Accounts, SetAside
from ingest.lakehouse.backfills import Backfills
from ingest.lakehouse.bronze import Bronze
from ingest.lakehouse.bronze.summary import BronzeSummary
from ingest.lakehouse.catalog import CatalogEntry
from ingest.lakehouse.history_facts import HistoryFacts
from ingest.lakehouse.quarantine import Quarantine
from ingest.lakehouse.schema_history import SchemaHistory
from ingest.loop.catch_up import CatchUp
from ingest.loop.position_regression import PositionRegression
from ingest.loop.set_aside import SetAsideTables
from ingest.loop.slices import Slices
from ingest.loop.suppression.suppress import Suppression
from ingest.loop.table_faults import ENGINE, FAULTS, Reason, raised, reason_of
from ingest.loop.table_merge import TableMerge
from ingest.loop.table_threads import merged_beside
from ingest.names import Lakehouse
from ingest.spark.checkpoints import checkpoint_scope

NO_TABLE = ""
"""Name in the accounts of events without a table: heartbeats, transaction boundaries and the like."""

_REASONS = {
    NOT_JSON: "the value is no JSON object of a change event",
    REGISTRY_FRAME: "the value is in a schema registry's frame (the byte 0, then a schema id), as Avro, Protobuf or "
    "JSON Schema converters write it, and is no Debezium event by its schema: name the registry in the pipeline's file "
    "(source: {registry: {url: ...}}), or set the connector's value.converter to "
    "org.apache.kafka.connect.json.JsonConverter",
    CLOUD_EVENT: "the value is a CloudEvents envelope: declare it in the pipeline's file (source: {record_forms: "
    "{TOPIC: cloudevents}}). It needs Debezium's attributes (iodebeziumop, ...) and data in JSON, as by default",
    UNWRAPPED_ROW: "the value is a row without an envelope, and nothing names its table: name it in the pipeline's "
    "file (source: {topic_tables: {TOPIC: TABLE}}), or let ExtractNewRecordState add it (add.fields: schema,table)",
    UNKNOWN_OP: "the event has no op that is known (c, u, d, r, t, m)",
    TOO_LARGE: "the value has more bytes than limits: {event_bytes: ...} allows: raise it, then read the topic again "
    "with ingest backfill",
    NO_SEQUENCE: "neither image holds a whole number in the column that orders the table",
}
_TABLES_AT_ONCE = 4
_log = logging.getLogger(__name__)
_LEASE_SECONDS = 120.0


class Merge:
    """Merges bronze into silver, slice by slice. The accounts hold how far it is: a slice that was interrupted is
    merged again as a whole, which changes nothing that is stored already."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: str,
        lakehouse: Lakehouse,
        rules: Rules,
        bronze: Bronze,
        slice_events: int = 500_000,
        writer: str | None = None,
        earlier_readers: EarlierReaders | None = None,
        known_messages: SchemaHistory | None = None,
    ) -> None:
        """`slice_events`: about the number of events per slice where more wait; a slice holds whole batches. `writer`:
        name under which slices are accounted for; by default the pipeline's. Several writers may merge into the same
        tables at once. `earlier_readers`: readers that are merged before this one. `known_messages`: about definitions,
        besides those of `bronze`."""
        writer = writer or pipeline
        self._bronze = bronze
        self._rules = rules
        self._quarantine = Quarantine(spark, lakehouse.quarantine, pipeline, rules.tuning)
        self._accounts = Accounts(spark, lakehouse.accounts, writer, rules.tuning)
        self.tables = TableMerge(spark, pipeline, lakehouse, rules, self._quarantine, writer, known_messages)
        history = HistoryFacts(spark, lakehouse.history_facts)
        stored = (self.tables.table_schemas, self.tables.table_state, self._quarantine)
        self._suppression = Suppression(spark, pipeline, rules, *stored, history, writer)
        self._summary = BronzeSummary(bronze, writer, history, rules.view)
        backfills = Backfills(spark, lakehouse.backfills, pipeline)
        others = OtherReaders(spark, pipeline, lakehouse, rules, bronze, backfills).captured
        table_schemas = self.tables.table_schemas
        self._slices = Slices(bronze, rules, table_schemas, slice_events, self._summary, earlier_readers, others)
        self._set_aside_tables = SetAsideTables(self._accounts, self._quarantine)
        parts = (self._bronze, rules, self.tables, self._suppression, self._set_aside_tables)
        self._catch_up = CatchUp(*parts, slice_events, backfills, earlier_readers, others)
        # Kept for the life of the merge, because each of its threads opens a connection to the JVM.
        self._table_pool = ThreadPoolExecutor(_TABLES_AT_ONCE, thread_name_prefix="merge")
        self._has_resumed = False
        self._has_followed = False
        self._deferred_compactions = 0
        self._position_regression = PositionRegression(spark, bronze, self._summary, rules.stops_at_restart)
        self.merged = max(self._accounts.merged_through(), bronze.begins_after)
        self.newest: datetime | None = None
        """Source time of the newest change that this run has merged."""

    def close(self) -> None:
        """Waits until no table is being merged, so that another `Merge` may start."""
        self._table_pool.shutdown(cancel_futures=True)

    def step(self, captured: int | None = None, more: bool = False) -> list[Account]:
        """Merges one slice, and one slice of a table that was set aside and can go on. Returns their accounts; empty if
        there was nothing to merge. `captured`: last batch in bronze, if the caller knows it. `more`: more is about to
        be captured, so a slice that isn't full waits."""
        accounts = self._merge_next_slice(captured, more)
        return by_table([*accounts, *self._catch_up.step(self._merge_with_retry)])

    @property
    def set_aside(self) -> Mapping[str, SetAside]:
        """Returns the tables that can't be merged as they are, by name."""
        return self._set_aside_tables.known

    @property
    def to_refold(self) -> list[CatalogEntry]:
        """Returns the entries of tables whose events tell what stored rows don't any more, but for those set aside."""
        found = (entry for entry in self.tables.table_schemas.entries if entry.refold)
        return [e for e in found if e.table_schema.table not in self._set_aside_tables]

    def refresh_tables(self) -> None:
        """Reads the catalog again, because a rebuild has replaced tables."""
        self.tables.table_schemas.revisions.refresh()

    @property
    def fault(self) -> BaseException | None:
        """Returns the last error raised for a table that is set aside."""
        return self._set_aside_tables.fault

    @property
    def catches_up(self) -> bool:
        """Returns whether some table that is set aside may be able to go on."""
        return self._set_aside_tables.next() is not None

    def _merge_next_slice(self, captured: int | None, more: bool) -> list[Account]:
        last = self._bronze.last_batch() if captured is None else captured
        if last <= self.merged or (more and not self._slices.is_full(self.merged, last)):
            return []
        unfinished = None if self._has_resumed else self._unfinished_slice()
        self._has_resumed = True
        # A slice that another run has begun, dead or still running, is merged again as a whole.
        through_batch = self._slices.end(self.merged, last) if unfinished is None else unfinished
        if through_batch > last:
            last = max(through_batch, self._bronze.last_batch())  # Another run has captured more.
        groups = self._slices.group_stats(self.merged, through_batch, last)
        if any(g.table is not None and self._may_be_keyless(g.table) for g in groups):
            self._accounts.begin_slice(self.merged, through_batch)
        with checkpoint_scope():
            self._position_regression.check(
                self.merged, through_batch, groups, partial(self._events_before_cutoff, through_batch, groups)
            )
            accounts, waiting = self._merge_tables(through_batch, groups)
        if waiting:
            self._accounts.add(self.merged, through_batch, accounts, self._set_aside_tables.shares(waiting))
            self._set_aside_tables.accounted()
        else:
            self._accounts.add(self.merged, through_batch, accounts)
        self.merged = through_batch
        self._summary.record_merged(through_batch, sum(group.count for group in groups))
        self._compact(through_batch)
        times = [datetime.fromtimestamp(g.newest / 1000, UTC) for g in groups if g.newest is not None]
        self.newest = max([*times, *([self.newest] if self.newest else [])], default=None)
        # Py4j's objects form cycles: until they are collected the JVM keeps all rows and plans of the slice.
        gc.collect()
        return [*accounts, *waiting]

    def _unfinished_slice(self) -> int | None:
        """Returns the last batch of the slice that another run has begun; None where none has."""
        found = self.tables.unfinished_slice(self.merged)
        return self._accounts.begun_slice(self.merged) or found

    def _may_be_keyless(self, table: str) -> bool:
        return self._rules.keyless and self._rules.takes(table) and self.tables.table_schemas.may_be_keyless(table)

    def _compact(self, through_batch: int) -> None:
        """Compacts the small files of one table per slice, because the next slice waits for it. Those of accounts,
        quarantine and bronze are deferred for some slices while merged tables are compacted."""
        self._deferred_compactions = self._deferred_compactions + 1 if self.tables.pop_has_compacted() else 0
        if self._deferred_compactions % FILES_PER_SIZE:
            return
        if not self._accounts.compact() and not self._quarantine.compact():
            self._bronze.compact(through_batch)

    def _events_before_cutoff(self, through_batch: int, groups: Sequence[Group]) -> list[DataFrame]:
        read = self._slices.read(self.merged, through_batch, groups, repeated=True)
        batches = [batch for batch in read.batches if batch.table not in self._set_aside_tables]
        return self._suppression.events_before_cutoff(batches, self._slices.schemas, raised)

    def _merge_tables(self, through_batch: int, groups: Sequence[Group]) -> tuple[list[Account], list[Account]]:
        """Returns the accounts of merged tables, and those of tables that are set aside."""
        self._set_aside_tables.refresh()
        read = self._slices.read(self.merged, through_batch, groups)
        has_messages = any(group.kind == "m" and group.table is not None for group in groups)
        if has_messages:
            self.tables.table_schemas.told_tables.add(read.events)
        accounts = self._account_without_table(read.events, groups, read.tombstones)
        waiting = [self._set_aside_tables.leave(b) for b in read.batches if b.table in self._set_aside_tables]
        others = [b for b in read.batches if b.table not in self._set_aside_tables]
        reasons = dict[str, Reason]()
        others = self._suppression.without_suppressed(others, self._slices.schemas, partial(_record_fault, reasons))
        merge = partial(self._merge_or_set_aside, self._slices.schemas, reasons)
        for account in merged_beside(self._table_pool, merge, others):
            (waiting if account.table in self._set_aside_tables else accounts).append(account)
        if has_messages or not self._has_followed:
            self._follow({table for table in self.tables.table_schemas.told_tables.behind() if table not in reasons})
        return by_table(accounts), waiting

    def _follow(self, tables: Collection[str]) -> None:
        """Brings tables to what messages tell of them, if the slice has no events of theirs."""
        self._has_followed, faults = True, dict[str, Reason]()
        for table in sorted(tables):
            if self._rules.takes(table) and table not in self._set_aside_tables:
                try:
                    retry_on_conflict()(self.tables.follow, table)
                except FAULTS as error:
                    # The next events of the table fail alike, and set it aside.
                    _record_fault(faults, table, error)
                    _log.warning("what messages tell can't be applied: %s", faults[table].text)

    def _merge_or_set_aside(self, schemas: Schemas, reasons: dict[str, Reason], batch: TableBatch) -> Account:
        if batch.table not in reasons:
            try:
                return self._merge_with_retry(schemas, batch)
            except FAULTS as error:
                _record_fault(reasons, batch.table, error)
        return self._set_aside_tables.set_aside(batch, reasons[batch.table])

    def _merge_with_retry(self, schemas: Schemas, batch: TableBatch) -> Account:
        """Merges a batch, and once more if the engine fails: a fault that repeats is the table's."""
        try:
            return self._merge_table(schemas, batch)
        except FAULTS as error:
            reason = reason_of(batch.table, error)
            if reason is None or reason.code != ENGINE:
                raise
        self.tables.unfinished_slice_of(batch.table, batch.through_batch - 1)
        return self._merge_table(schemas, batch)

    def _merge_table(self, schemas: Schemas, batch: TableBatch) -> Account:
        """Merges a batch, again after each conflict with another writer, on the table as that left it. After the second
        conflict it takes a lease, or small batches would overtake a large one for ever."""

        excluded = Account(
            batch.table,
            batch.suppressed + batch.quarantined,
            quarantined=batch.quarantined,
            suppressed=batch.suppressed,
        )
        if batch.is_empty:
            return excluded

        def take_lease(attempt: RetryCallState) -> None:
            # The failed attempt may have made one of the table's commits.
            self.tables.unfinished_slice_of(batch.table, batch.through_batch - 1)
            if attempt.attempt_number > 1:
                self.tables.take_lease(batch.table, _LEASE_SECONDS)

        account: Account = retry_on_conflict(before_sleep=take_lease)(self.tables.merge, batch, schemas)
        return account + excluded

    def _account_without_table(
        self, events: DataFrame, groups: Sequence[Group], tombstones: PlacedTombstones
    ) -> list[Account]:
        """Returns the accounts of events that no table takes: control records, messages, excluded tables. Quarantines
        unreadable ones."""
        accounts = []
        for group in groups:
            table = group.table or NO_TABLE
            if group.problem is not None:
                accounts.append(Account(table, group.count, quarantined=group.count))
            elif group.kind == TOMBSTONE:
                continue  # Counted by table, once placed.
            elif group.kind in (CONTROL, "m") or not (group.table is None or self._rules.takes(group.table)):
                accounts.append(Account(table, group.count, suppressed=group.count))
        for name, (count, _) in tombstones.counts.items():
            if name is None or not self._rules.takes(name):
                accounts.append(Account(name or NO_TABLE, count, suppressed=count))
        if any(g.problem is not None for g in groups):
            self._quarantine_unreadable(events.where(F.col("problem").isNotNull()))
        return accounts

    def _quarantine_unreadable(self, unreadable: DataFrame) -> None:
        pairs = [F.lit(text) for pair in _REASONS.items() for text in pair]
        reason = F.element_at(F.create_map(*pairs), F.col("problem"))
        with_table = unreadable.withColumn("table", F.col("source_table"))
        self._quarantine.add(with_table.withColumn("code", F.col("problem")).withColumn("reason", reason))


def _record_fault(reasons: dict[str, Reason], table: str, error: Exception) -> None:
    """Records why an error sets its table aside. Raises it where it is no fault of the table."""
    reason = reason_of(table, error)
    if reason is None:
        raise error
    reasons[table] = reason
