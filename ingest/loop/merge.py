"""Merge: a slice of bronze into the silver tables it touches, and the accounts of what became of each event."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tenacity import RetryCallState

from ingest.batches.deliveries import EarlierReaders
from ingest.batches.group_stats import Group
from ingest.batches.placement import Placed
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
    UNKNOWN_OP,
    UNWRAPPED_ROW,
)
from ingest.delta.compaction import FILES_PER_SIZE
from ingest.delta.conflict_retry import retry_on_conflict
from ingest.lakehouse.accounts import Accounts, SetAside
from ingest.lakehouse.backfills import Backfills
from ingest.lakehouse.bronze import Bronze
from ingest.lakehouse.bronze_summary import BronzeSummary
from ingest.lakehouse.history_facts import HistoryFacts
from ingest.lakehouse.quarantine import Quarantine
from ingest.loop.catch_up import CatchUp
from ingest.loop.position_regression import PositionRegression
from ingest.loop.set_aside import TablesAside
from ingest.loop.slices import Slices
from ingest.loop.suppress import Suppression
from ingest.loop.table_faults import ENGINE, FAULTS, Reason, reason_of
from ingest.loop.table_merge import TableMerge
from ingest.names import Lakehouse
from ingest.spark.checkpoints import checkpoint_scope

NO_TABLE = ""
"""Under which heartbeats, transaction boundaries and the like are accounted for."""

_REASONS = {
    NOT_JSON: "the value is no JSON object of a change event",
    REGISTRY_FRAME: "the value is in a schema registry's frame (the byte 0, then a schema id), as Avro, Protobuf or "
    "JSON Schema converters write it: set the connector's value.converter to "
    "org.apache.kafka.connect.json.JsonConverter",
    CLOUD_EVENT: "the value is a CloudEvents envelope: set the connector's value.converter to "
    "org.apache.kafka.connect.json.JsonConverter in place of CloudEventsConverter",
    UNWRAPPED_ROW: "the value is a bare row without op, source, before and after: take ExtractNewRecordState (unwrap) "
    "out of the connector's transforms",
    UNKNOWN_OP: "the event has no op that is known (c, u, d, r, t, m)",
    NO_SEQUENCE: "neither image holds a whole number in the column that orders the table",
}
_TABLES_AT_ONCE = 4
_LEASE_SECONDS = 120.0


class Merge:
    """Folds bronze into silver, slice by slice. The accounts say how far it came: a slice that was cut off in the
    middle is merged again as a whole, which changes nothing that is there already."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: str,
        lakehouse: Lakehouse,
        rules: Rules,
        bronze: Bronze,
        slice_events: int = 500_000,
        writer: str | None = None,
        elsewhere: EarlierReaders | None = None,
    ) -> None:
        """`slice_events`: about so many are merged at once where more wait, whole batches of them. `writer`: whose
        accounts these are; the pipeline's own unless said. Several writers may merge into the same tables at once.
        `elsewhere`: readers whose events have been merged before."""
        writer = writer or pipeline
        self._bronze = bronze
        self._rules = rules
        self._quarantine = Quarantine(spark, lakehouse.quarantine, pipeline)
        self._accounts = Accounts(spark, lakehouse.accounts, writer)
        self.tables = TableMerge(spark, pipeline, lakehouse, rules, self._quarantine, writer)
        self._fencing = Suppression(
            spark, pipeline, rules, self.tables.table_schemas, self.tables.table_state, self._quarantine
        )
        history = HistoryFacts(spark, lakehouse.known_history)
        self._summary = BronzeSummary(bronze, writer, history, rules.view)
        self._slices = Slices(bronze, rules, self.tables.table_schemas, slice_events, self._summary, elsewhere)
        self._aside = TablesAside(self._accounts, self._quarantine)
        parts = (self._bronze, rules, self.tables, self._fencing, self._aside)
        backfills = Backfills(spark, lakehouse.backfills, pipeline)
        self._catch_up = CatchUp(*parts, slice_events, backfills, elsewhere)
        # Kept: each of its threads has a connection to the JVM.
        self._side_by_side = ThreadPoolExecutor(_TABLES_AT_ONCE, thread_name_prefix="merge")
        self._asked = False
        self._put_off = 0
        self._restarts = PositionRegression(spark, bronze, self._summary, rules.stops_at_restart)
        self.merged = max(self._accounts.merged_through(), bronze.begins_after)
        self.newest: datetime | None = None
        """When the newest change that this run has merged was made at its source."""

    def close(self) -> None:
        """Waits for what is still being merged: another `Merge` may begin then."""
        self._side_by_side.shutdown(cancel_futures=True)

    def step(self, captured: int | None = None, more: bool = False) -> list[Account]:
        """One slice, and one of a table that was set aside and can go on. `captured`: the last batch in bronze, where
        the caller knows. `more`: it is about to capture more: a slice that isn't full yet waits for it. Empty: nothing
        was new, or nothing was merged yet."""
        accounts = self._slice(captured, more)
        return by_table([*accounts, *self._catch_up.step(self._merge_again)])

    @property
    def set_aside(self) -> Mapping[str, SetAside]:
        """Returns the tables that can't be merged as they are, by name."""
        return self._aside.known

    @property
    def fault(self) -> BaseException | None:
        """Returns what was raised last for a table that is set aside."""
        return self._aside.fault

    @property
    def catches_up(self) -> bool:
        """Whether a table that was set aside may be able to go on."""
        return self._aside.next() is not None

    def _slice(self, captured: int | None, more: bool) -> list[Account]:
        last = self._bronze.last_batch() if captured is None else captured
        if last <= self.merged or (more and not self._slices.is_full(self.merged, last)):
            return []
        begun = None if self._asked else self._begun()
        self._asked = True
        # What another run has begun is merged again as a whole: one that died, or that goes on at the same time.
        upto = self._slices.end(self.merged, last) if begun is None else begun
        if upto > last:
            last = max(upto, self._bronze.last_batch())  # Another run has captured more than this one knows.
        groups = self._slices.profile(self.merged, upto, last)
        if any(g.table is not None and self._may_be_keyless(g.table) for g in groups):
            self._accounts.begin_slice(self.merged, upto)
        with checkpoint_scope():
            self._restarts.check(self.merged, upto, groups, partial(self._old_lives, upto, groups))
            accounts, waiting = self._slice_accounts(upto, groups)
        if waiting:
            self._accounts.add(self.merged, upto, accounts, self._aside.shares(waiting))
            self._aside.accounted()
        else:
            self._accounts.add(self.merged, upto, accounts)
        self.merged = upto
        self._summary.record_merged(upto, sum(group.count for group in groups))
        self._fold(upto)
        times = [datetime.fromtimestamp(g.newest / 1000, UTC) for g in groups if g.newest is not None]
        self.newest = max([*times, *([self.newest] if self.newest else [])], default=None)
        # Py4j's objects are in cycles: until Python looks for these, the JVM keeps all rows and plans of the slice.
        gc.collect()
        return [*accounts, *waiting]

    def _begun(self) -> int | None:
        """The last batch of the slice that another run has begun; None where none has."""
        known = self.tables.begun_slice(self.merged)
        return self._accounts.begun_slice(self.merged) or known

    def _may_be_keyless(self, table: str) -> bool:
        return self._rules.keyless and self._rules.takes(table) and self.tables.table_schemas.may_be_keyless(table)

    def _fold(self, upto: int) -> None:
        """Small files of one table a slice: the next one waits for it. Where merged tables have theirs written together
        all the time, the others' wait some slices long."""
        self._put_off = self._put_off + 1 if self.tables.have_folded() else 0
        if self._put_off % FILES_PER_SIZE:
            return
        if not self._accounts.compact() and not self._quarantine.compact():
            self._bronze.compact(upto)

    def _old_lives(self, upto: int, groups: Sequence[Group]) -> list[DataFrame]:
        read = self._slices.read(self.merged, upto, groups, repeated=True)
        batches = [batch for batch in read.batches if batch.table not in self._aside]
        return self._fencing.old_lives(batches, self._slices.schemas)

    def _slice_accounts(self, upto: int, groups: Sequence[Group]) -> tuple[list[Account], list[Account]]:
        """Those of what was merged, and those of the tables that are set aside."""
        self._aside.refresh()
        read = self._slices.read(self.merged, upto, groups)
        accounts = self._without_table(read.events, groups, read.tombstones)
        waiting = [self._aside.leave(b) for b in read.batches if b.table in self._aside]
        others = [b for b in read.batches if b.table not in self._aside]
        unfenced = dict[str, Reason]()
        others = self._fencing.without_old_lives(others, self._slices.schemas, partial(_found_unusable, unfenced))
        merge = partial(self._merged_or_set_aside, self._slices.schemas, unfenced)
        for account in self._side_by_side.map(merge, others):
            (waiting if account.table in self._aside else accounts).append(account)
        return by_table(accounts), waiting

    def _merged_or_set_aside(self, schemas: Schemas, unfenced: dict[str, Reason], batch: TableBatch) -> Account:
        if batch.table not in unfenced:
            try:
                return self._merge_again(schemas, batch)
            except FAULTS as error:
                _found_unusable(unfenced, batch.table, error)
        return self._aside.set_aside(batch, unfenced[batch.table])

    def _merge_again(self, schemas: Schemas, batch: TableBatch) -> Account:
        """Once more where the engine fails: a fault that comes again is the table's."""
        try:
            return self._merged(schemas, batch)
        except FAULTS as error:
            reason = reason_of(batch.table, error)
            if reason is None or reason.code != ENGINE:
                raise
        self.tables.begun_in(batch.table, batch.upto - 1)
        return self._merged(schemas, batch)

    def _merged(self, schemas: Schemas, batch: TableBatch) -> Account:
        """Again where another writer's batch came first: what it found is judged by the table as that left it. Large
        batches would never be done beside small ones; so who came too late asks the others to wait."""

        away = Account(batch.table, batch.suppressed + batch.held, quarantined=batch.held, suppressed=batch.suppressed)
        if batch.is_empty:
            return away

        def take_lease(attempt: RetryCallState) -> None:
            # One of the table's commits may be there.
            self.tables.begun_in(batch.table, batch.upto - 1)
            if attempt.attempt_number > 1:
                self.tables.take_lease(batch.table, _LEASE_SECONDS)

        account: Account = retry_on_conflict(before_sleep=take_lease)(self.tables.merge, batch, schemas)
        return account + away

    def _without_table(self, events: DataFrame, groups: Sequence[Group], tombstones: Placed) -> list[Account]:
        """What no table takes: control records, messages, tables that are left out; and what can't be read."""
        accounts = []
        for group in groups:
            table = group.table or NO_TABLE
            if group.problem is not None:
                accounts.append(Account(table, group.count, quarantined=group.count))
            elif group.kind == TOMBSTONE:
                continue  # They are counted where they stand.
            elif group.kind in (CONTROL, "m") or not (group.table is None or self._rules.takes(group.table)):
                accounts.append(Account(table, group.count, suppressed=group.count))
        for name, (count, _) in tombstones.counts.items():
            if name is None or not self._rules.takes(name):
                accounts.append(Account(name or NO_TABLE, count, suppressed=count))
        if any(g.problem is not None for g in groups):
            self._set_aside(events.where(F.col("problem").isNotNull()))
        return accounts

    def _set_aside(self, unreadable: DataFrame) -> None:
        pairs = [F.lit(text) for pair in _REASONS.items() for text in pair]
        reason = F.element_at(F.create_map(*pairs), F.col("problem"))
        named = unreadable.withColumn("table", F.col("source_table"))
        self._quarantine.add(named.withColumn("code", F.col("problem")).withColumn("reason", reason))


def _found_unusable(reasons: dict[str, Reason], table: str, error: Exception) -> None:
    """Notes why an error sets its table aside. Raises it where it is no fault of the table's."""
    reason = reason_of(table, error)
    if reason is None:
        raise error
    reasons[table] = reason
