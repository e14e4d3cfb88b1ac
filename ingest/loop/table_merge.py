"""One table's part of a batch: decode, compact, judge, write. Every step is a plan over DataFrames."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.batches.decoding import Changes
from ingest.batches.documents import require_rows
from ingest.batches.group_stats import CHANGE, Group, belongs_to
from ingest.batches.rules import Rules
from ingest.batches.schemas import Schemas
from ingest.batches.table_batch import TableBatch
from ingest.batches.table_owner import OTHER_DATABASE
from ingest.changelog.accounting import Account
from ingest.changelog.change import CODE, EVENT_ID, POSITION_COLUMN, REASON
from ingest.changelog.image_reader import ImageChoice
from ingest.changelog.position import position_literal, right_before_snapshot
from ingest.changelog.refusal import NO_KEY
from ingest.delta.commit_log import THROUGH_BATCH, WRITER
from ingest.errors import ConfigError, Contended
from ingest.evolution.policies import ColumnConflict
from ingest.lakehouse.quarantine import Quarantine
from ingest.loop.duplicate_delivery import DuplicateDeliveries
from ingest.loop.merge_lease import Begun, UnfinishedSlices
from ingest.loop.table_schemas import Incoming, Refused, TableSchemas
from ingest.loop.unordered_keys import UnorderedKeys
from ingest.loop.writing import note, write
from ingest.merge.images import TableSchema
from ingest.names import Lakehouse
from ingest.reconcile import Changeset, DuplicateMismatch, TableState, Truncation, reconcile, table_state
from ingest.reconcile.scd2 import RowHistory
from ingest.spark.checkpoints import checkpoint_scope

_ACCOUNT = "account"
"""What a commit tells beside whose slice it is."""


class TableMerge:
    """Merges the batches of one pipeline's tables. One writer per table; batches of one table come in turn."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: str,
        lakehouse: Lakehouse,
        rules: Rules,
        quarantine: Quarantine,
        writer: str,
    ) -> None:
        """`writer`: whose slices these are, of those that write the pipeline's tables."""
        self._spark = spark
        self._writer = writer
        self._pipeline = pipeline
        self._lakehouse = lakehouse
        self._rules = rules
        self._quarantine = quarantine
        self.table_schemas = TableSchemas(spark, pipeline, lakehouse, rules)
        self._deliveries = DuplicateDeliveries()
        self._unordered = UnorderedKeys(rules.stops_at_two_partitions)
        self._stored: dict[str, TableState] = {}
        self._truncated: dict[str, tuple[int, ...] | None] = {}
        self._begun = UnfinishedSlices(writer)
        self._met: set[str] = set()
        self._folded = False

    def have_folded(self) -> bool:
        """Whether small files of any table were written together since this was asked last."""
        folded, self._folded = self._folded, False
        return folded

    def begun_slice(self, merged: int) -> int | None:
        """The end of a slice after `merged` that some table holds already: a run died before it was accounted for.
        To be asked once, before the first slice."""
        found = (self.begun_in(entry.table_schema.table, merged) for entry in self.table_schemas.entries)
        return max((upto for upto in found if upto is not None), default=None)

    def begun_in(self, table: str, merged: int) -> int | None:
        """The same of one table."""
        return self._begun.find(table, self.table_state(table), merged)

    @checkpoint_scope()
    def merge(self, batch: TableBatch, schemas: Schemas) -> Account:
        """Merges what is the table's own, and sets aside events of another server or database. What became of the
        events comes back as an account."""
        own = self.table_schemas.owned(batch)
        if own.foreign is None:
            return self._merge(batch, schemas, own.owner)
        account = Account(batch.table, own.refused, quarantined=own.refused)
        if own.batch.is_empty:
            self.table_schemas.record_owner(batch.table, own.owner, self.table_state(batch.table))
        else:
            account += self._merge(own.batch, schemas, own.owner)
        # Now that it is recorded whose the table is: another writer might have been the first.
        named = own.foreign.withColumn("table", F.lit(batch.table)).withColumn("code", F.lit(OTHER_DATABASE))
        self._quarantine.add(named)
        return account

    def _merge(self, batch: TableBatch, schemas: Schemas, origin: str) -> Account:
        """What became of the events comes back as an account.

        A slice that had begun when a run died is merged again as a whole: what is there already changes nothing. Where
        rows are counted rather than known by a key, what is there is left out instead."""
        changed = [g for g in batch.groups if g.kind == CHANGE]
        types = self._rules.columns.get(batch.table, {})
        incoming = [(g, schemas.columns(g, types)) for g in changed]
        read = batch.count
        if not self._rules.keyless and self.table_schemas.is_keyless(batch):
            return Account(batch.table, read, suppressed=read)
        if not self.table_schemas.names(batch.table):
            require_rows(batch, changed)
        stored = self.table_state(batch.table)
        others = self._begin(batch.table, stored)
        table_schema, refused = self.table_schemas.settled(batch, incoming, stored, origin)
        if others and table_schema is not None:
            _require_same(stored, table_schema)
        if table_schema is not None and not table_schema.key:
            begun = self._begun_keyless(batch, stored, others)
            if begun.silver is not None:
                return Account(**begun.silver.user_metadata[_ACCOUNT])
            stored = replace(stored, owed_before=None if begun.pending is None else begun.pending.version)
        truncated = self._truncate(batch, stored)
        if table_schema is None:
            return self._refuse_all(batch, incoming, truncated.applied, refused)
        for group, conflicts in refused.items():
            self._refuse(batch, group, conflicts)
        quarantined = sum(group.count for group in refused)
        readable = [(g, c) for g, c in incoming if g not in refused]
        if not table_schema.key:
            batch = replace(batch, events=self._deliveries.once(batch))
        arrived = self.table_schemas.arrived(batch.table)
        changes = Changes(batch, table_schema, readable, self._rules, arrived)
        if readable:
            self._unordered.check(batch, table_schema, changes, stored)
        judging = None
        if readable or batch.tombstones is not None or truncated.now:
            judging = partial(reconcile, changes, table_schema, stored, truncated, batch.count, batch.key_changes)
        before = Account(batch.table, read, truncated.applied, quarantined=quarantined)
        settle = partial(self._settle, batch, table_schema, stored, changes, judging, before)
        try:
            return settle()
        except DuplicateMismatch:
            return settle(sure=True)

    def _settle(
        self,
        batch: TableBatch,
        table_schema: TableSchema,
        stored: TableState,
        changes: Changes,
        judging: Callable[..., Changeset] | None,
        before: Account,
        sure: bool = False,
    ) -> Account:
        """Judges the changes and writes what follows. `before`: what is accounted for already."""
        judged = None if judging is None else judging(sure=sure)
        applied = before.applied + (judged.applied if judged else 0)
        quarantined = before.quarantined + (judged.quarantined if judged else 0)
        account = Account(batch.table, before.read, applied, before.read - applied - quarantined, quarantined)
        begun = self._begun.of(batch)
        if begun.silver is not None:
            earlier = Account(**begun.silver.user_metadata[_ACCOUNT])
            # Another run may have ended a slice at the same batch that began at another one.
            account = earlier if earlier.read == account.read else account
        if stored.row_history is not None:
            self._tell(stored.row_history, batch, table_schema, changes, judged)
        self._write(batch, judged, table_schema, stored, account)
        return account

    def _begun_keyless(self, batch: TableBatch, stored: TableState, others: bool) -> Begun:
        """Returns what a table without a key holds of this slice. `others`: another writer has written to the table.
        Raises Overtaken where another run has merged another slice into it."""
        if others:
            self._begun.require_same(batch, stored)
            self._deliveries.forget(batch.table)
        return self._begun.of(batch)

    def table_state(self, table: str) -> TableState:
        """Where the table is kept."""
        if table not in self._stored:
            history, personal = table in self._rules.history, self._rules.personal.get(table, frozenset())
            stored = table_state(self._spark, self._lakehouse, self._pipeline, table, history, personal)
            for entry in self.table_schemas.entries if personal else ():
                if entry.table_schema.table == table:
                    for kept in stored.kept:
                        kept.disable_personal_statistics(entry.table_schema)
            self._stored[table] = stored
        return self._stored[table]

    def _begin(self, table: str, stored: TableState) -> bool:
        """What is read of the table from here on is what the batch builds on. Whether anybody else has written to it:
        then nothing that was known of it holds."""
        others = [kept.pin_snapshot(self._writer) for kept in stored.kept]
        if any(others):
            stored.tombstones.refresh()
        if any(others) and table in self._met:
            self._truncated.pop(table, None)
            self.table_schemas.refresh()
        self._met.add(table)
        return any(others)

    def take_lease(self, table: str, seconds: float) -> None:
        """Asks other writers of the table to wait for this one's next batch, for so long at most."""
        silver = self.table_state(table).silver
        if silver.exists():
            silver.take_lease(self._writer, seconds)

    def _write(
        self,
        batch: TableBatch,
        judged: Changeset | None,
        table_schema: TableSchema,
        stored: TableState,
        account: Account,
    ) -> None:
        told = {WRITER: self._writer, THROUGH_BATCH: batch.upto, _ACCOUNT: asdict(account)}
        if judged is None:
            note(table_schema, stored, told)
        elif write(judged, table_schema, stored, told, partial(self._quarantine_rows, batch)):
            self._folded = True

    def _tell(
        self,
        row_history: RowHistory,
        batch: TableBatch,
        table_schema: TableSchema,
        changes: Changes,
        judged: Changeset | None,
    ) -> None:
        """Before silver is written: the same batch again makes good what a crash in between left undone."""
        if not table_schema.key:
            raise ConfigError(
                f"table {batch.table} has no key, so none of its rows has a history",
                "declare its primary_key, or take history: true away",
            )
        brought = changes(ImageChoice.AFTER_OR_BEFORE).where(F.col(CODE).isNull())
        if judged is not None and judged.refused is not None:
            brought = brought.join(F.broadcast(judged.refused.select(EVENT_ID)), EVENT_ID, "left_anti")
        emptied = batch.emptied(self._rules.whole_snapshots)
        row_history.add(brought, emptied, table_schema, {WRITER: self._writer, THROUGH_BATCH: batch.upto})

    def _quarantine_rows(self, batch: TableBatch, bad: DataFrame) -> None:
        named = bad.select(F.col(f"{EVENT_ID}.*"), F.col(CODE).alias("code"), F.col(REASON).alias("reason"))
        whole = batch.events.join(F.broadcast(named), ["topic", "partition", "offset"])
        self._quarantine.add(whole.withColumn("table", F.lit(batch.table)))

    def _set_aside(self, batch: TableBatch, events: DataFrame, code: str, reason: str) -> None:
        told = events.withColumn("table", F.lit(batch.table)).withColumn("code", F.lit(code))
        self._quarantine.add(told.withColumn("reason", F.lit(reason)))

    def _refuse(self, batch: TableBatch, group: Group, conflicts: Sequence[ColumnConflict]) -> None:
        reason = "; ".join(str(c) for c in conflicts)
        self._set_aside(batch, batch.events.where(belongs_to(group)), conflicts[0].code, reason)

    def _refuse_all(self, batch: TableBatch, incoming: Incoming, applied: int, refused: Refused) -> Account:
        """No key, or no column: no change of this table can be placed yet."""
        reason = self.table_schemas.why_unplaced(batch, incoming)
        changed = [g for g in batch.groups if g.kind == CHANGE]
        for group in changed:
            if group in refused:
                self._refuse(batch, group, refused[group])
            else:
                self._set_aside(batch, batch.events.where(belongs_to(group)), NO_KEY, reason)
        quarantined = sum(g.count for g in changed)
        return Account(batch.table, batch.count, applied, batch.count - applied - quarantined, quarantined)

    def _truncate(self, batch: TableBatch, stored: TableState) -> Truncation:
        """Empties the table below its last truncate, or below a snapshot that has ended: it read every row."""
        if batch.table not in self._truncated:
            self._truncated[batch.table] = stored.tombstones.truncated_at()
        truncates = [g.last_position for g in batch.groups if g.kind == "t"]
        snapshots = [right_before_snapshot(g.snapshot) for g in batch.groups if g.snapshot is not None]
        latest = max(truncates + (snapshots if self._rules.whole_snapshots else []), default=None)
        known = self._truncated[batch.table]
        if latest is None:
            return Truncation(known)
        new = known is None or latest > known
        if new:
            at = self._spark.range(1).select(position_literal(latest).alias(POSITION_COLUMN))
            stored.tombstones.write_truncate(at)
            self._truncated[batch.table] = latest
        last = max(latest, known or latest)
        for kept in (stored.silver, stored.pending):
            if kept.exists():
                kept.truncate(position_literal(last))
        return Truncation(last, new, int(new and latest in truncates))


def _require_same(stored: TableState, table_schema: TableSchema) -> None:
    """Another writer may be about to say to the catalog what it has done to the table."""
    if stored.silver.exists() and not stored.silver.has(table_schema):
        raise Contended(
            f"table {table_schema.table} has other columns than its catalog says: a rebuild is under way, or died",
            "run the same again; one that died goes on where it stood with: ingest backfill PIPELINE --rebuild",
        )
