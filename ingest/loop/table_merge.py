"""Merges one table's part of a batch: decode → compact → load state → reconcile → commit → account.

Every step is a plan over DataFrames; only `reconcile` decides, and it writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ingest.batches.decoding import BatchChanges
from ingest.batches.documents import require_rows
from ingest.batches.group_stats import CHANGE
from ingest.batches.missing_schema import why_no_schema
from ingest.batches.policies.batch_policy import BatchPolicy
from ingest.batches.rules import Rules
from ingest.batches.schemas import Schemas
from ingest.batches.seen_versions import Incoming
from ingest.batches.table_batch import TableBatch
from ingest.changelog.accounting import Account
from ingest.changelog.change import CODE, EVENT_ID
from ingest.changelog.image_reader import ImageChoice
from ingest.delta.commit_log import THROUGH_BATCH, WRITER
from ingest.delta.conflict_retry import retry_on_conflict
from ingest.evolution.keys import Key
from ingest.lakehouse.quarantine import Quarantine
from ingest.lakehouse.schema_history import SchemaHistory
from ingest.loop.duplicate_delivery import DuplicateDeliveries
from ingest.loop.key_shares import KeyShares
from ingest.loop.refusals import Refusals
from ingest.loop.table_schemas import Refused, TableSchemas
from ingest.loop.unfinished_slices import SliceCommits, UnfinishedSlices
from ingest.loop.unordered_keys import UnorderedKeys
from ingest.loop.writing import EmptiedTables, commit_changeset, commit_nothing, require_same_columns
from ingest.merge.table_schema import TableSchema
from ingest.names import Lakehouse
from ingest.reconcile import Changeset, TableState, Truncation, table_state
from ingest.reconcile.scd2 import RowHistory
from ingest.spark.checkpoints import checkpoint_scope

_ACCOUNT = "account"
"""The account of a slice, in the user metadata of its commits."""


class TableMerge:
    """Merges the batches of one writer into the pipeline's tables; batches of one table come in turn."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: str,
        lakehouse: Lakehouse,
        rules: Rules,
        quarantine: Quarantine,
        writer: str,
        known_messages: SchemaHistory | None = None,
    ) -> None:
        """`writer`: the name that this run's commits carry; several writers may merge into the same tables.
        `known_messages`: as of `TableSchemas`."""
        self._spark = spark
        self._writer = writer
        self._pipeline = pipeline
        self._lakehouse = lakehouse
        self._rules = rules
        self._refusals = Refusals(quarantine)
        self.table_schemas = TableSchemas(spark, pipeline, lakehouse, rules, known_messages)
        self._deliveries = DuplicateDeliveries()
        self._key_shares = KeyShares(self.table_schemas, self.table_state, self._merge)
        self._unordered = UnorderedKeys(rules.stops_at_two_partitions)
        self._states: dict[str, TableState] = {}
        self._emptied = EmptiedTables(spark, rules.whole_snapshots)
        self._unfinished = UnfinishedSlices(writer)
        self._loaded: set[str] = set()
        self._has_compacted = False

    def pop_has_compacted(self) -> bool:
        """Returns whether small files of any table were compacted since the last call."""
        has_compacted, self._has_compacted = self._has_compacted, False
        return has_compacted

    def unfinished_slice(self, merged: int) -> int | None:
        """Returns the last batch of a slice after `merged` that some table holds and that is not accounted for, because
        a run died; None where there is none. To be called once, before the first slice."""
        found = (self.unfinished_slice_of(entry.table_schema.table, merged) for entry in self.table_schemas.entries)
        return max((through_batch for through_batch in found if through_batch is not None), default=None)

    def unfinished_slice_of(self, table: str, merged: int) -> int | None:
        """Returns `unfinished_slice` of one table."""
        return self._unfinished.find(table, self.table_state(table), merged)

    @checkpoint_scope()
    def merge(self, batch: TableBatch, schemas: Schemas) -> Account:
        """Merges the events that the table's schema policy admits, and returns the account of all."""
        policies, entry = self.table_schemas.policies, self.table_schemas.revisions.get(batch.table)
        if not policies.is_created(batch.table, entry):
            return policies.not_created(batch)
        batch, account = policies.without_truncates(batch)
        return account if batch.is_empty else account + self._merge_own(batch, schemas)

    def _merge_own(self, batch: TableBatch, schemas: Schemas) -> Account:
        """Merges the events of the table's own server and database, quarantines those of others, and returns the
        account of all."""
        owned = self.table_schemas.owned_batch(batch)
        if owned.foreign is None:
            return self._merge(batch, schemas, owned.owner)
        account = Account(batch.table, owned.refused, quarantined=owned.refused)
        if owned.batch.is_empty:
            self.table_schemas.record_owner(batch.table, owned.owner, self.table_state(batch.table))
        else:
            account += self._merge(owned.batch, schemas, owned.owner)
        # After the owner is recorded: another writer might have been the first to record one.
        self._refusals.of_other_databases(batch, owned.foreign)
        return account

    def _merge(
        self,
        batch: TableBatch,
        schemas: Schemas,
        origin: str,
        carried: Key | None = None,
        shares: Mapping[Key, TableBatch] | None = None,
    ) -> Account:
        """Merges a batch of the table's own events and returns its account. `origin`: the table's server and database.
        `carried`: the key of all events, if it is not the one in force. `shares`: of a table without a key, by key.

        A slice that was under way when a run died is merged again as a whole: what is stored already changes nothing.
        Rows of a keyless table are counted, so there the part that is stored is left out."""
        read, types = batch.count, self._rules.columns.get(batch.table, {})
        incoming = [(g, schemas.columns(g, types)) for g in batch.groups if g.kind == CHANGE]
        if not self._rules.keyless and self.table_schemas.is_keyless(batch):
            return Account(batch.table, read, suppressed=read)
        stored, table_schema, refused, policy, has_other_writers = self._load_state(batch, incoming, schemas, origin)
        if carried is None and not shares and table_schema is not None:
            account = self._key_shares.merged_apart(batch, incoming, schemas, origin)
            if account is not None:
                return account
        if table_schema is not None and not table_schema.key:
            commits = self._commits_of_keyless(batch, stored, has_other_writers)
            if commits.silver is not None:
                return Account(**commits.silver.user_metadata[_ACCOUNT])
            stored = replace(stored, pending_commit=None if commits.pending is None else commits.pending.version)
        lives = self.table_schemas.lives(batch.table)
        truncation = self._emptied.truncation(batch, stored, lives.begin)
        if table_schema is None:
            key, names = self.table_schemas.key(batch), self.table_schemas.names(batch.table)
            reason = why_no_schema(batch.table, key, incoming, names, self._rules)
            quarantined = self._refusals.of_all_changes(batch, refused, reason)
            return Account(batch.table, read, truncation.applied, read - truncation.applied - quarantined, quarantined)
        quarantined = self._refusals.of_groups(batch, refused)
        taken = [(group, columns) for group, columns in policy.taken if group not in refused]
        readable = [(group, self.table_schemas.as_declared(batch.table, columns)) for group, columns in taken]
        read_by = (readable, self._rules, self.table_schemas.arrived(batch.table), lives)
        table_keys, former = self.table_schemas.table_keys, None
        if table_schema.key:
            changes = BatchChanges(batch, replace(table_schema, key=carried or table_schema.key), *read_by)
        else:
            # A null tombstone names no row there.
            own, batch = (shares or {}).get((), batch), replace(batch, tombstones=None)
            own = replace(own, events=self._deliveries.without_duplicates(own), tombstones=None)
            changes = BatchChanges(own, table_schema, *read_by)
            former = table_keys.former_keys(table_schema, shares or {}, read_by)
        if readable and carried is None:
            self._unordered.check(batch, table_schema, changes, stored)
        changeset = None
        if readable or batch.tombstones is not None or truncation.is_new:
            changeset = table_keys.reconciled(batch, changes, table_schema, stored, truncation, carried, former)
        before = Account(batch.table, read, truncation.applied, quarantined=quarantined, ignored=policy.ignored)
        account = self._account(batch, before, changeset)
        self._commit_history(stored.row_history, batch, table_schema, changes, changeset, truncation)
        self._commit(batch, changeset, table_schema, stored, account)
        if table_schema.key:
            self._emptied.remove_gone(batch, stored, truncation)
        return account

    def _load_state(
        self, batch: TableBatch, incoming: Incoming, schemas: Schemas, origin: str
    ) -> tuple[TableState, TableSchema | None, Refused, BatchPolicy, bool]:
        """Returns the table's stored state, pinned; its schema after the incoming groups, None where it has none yet;
        the groups that don't fit into it; its policy; and whether another writer has committed to the table.

        Raises TableUnusable where the images of a new table are documents, Contended where another writer is changing
        the table's columns."""
        if not self.table_schemas.names(batch.table):
            require_rows(batch, (group for group, _ in incoming))
        stored = self.table_state(batch.table)
        has_other_writers = self._pin_snapshots(batch.table, stored)
        table_schema, refused, policy = self.table_schemas.evolve(batch, incoming, stored, schemas, origin)
        if has_other_writers and table_schema is not None:
            require_same_columns(stored, table_schema)
        return stored, table_schema, refused, policy, has_other_writers

    def _account(self, batch: TableBatch, before: Account, changeset: Changeset | None) -> Account:
        """Returns the account of the batch: the one that a died run has committed with the same slice, if there is.
        `before`: what is accounted for already. `changeset`: None where nothing can change."""
        applied = before.applied + (changeset.applied if changeset else 0)
        quarantined = before.quarantined + (changeset.quarantined if changeset else 0)
        superseded = before.read - applied - quarantined
        account = Account(batch.table, before.read, applied, superseded, quarantined, ignored=before.ignored)
        commits = self._unfinished.of(batch)
        if commits.silver is None:
            return account
        earlier = Account(**commits.silver.user_metadata[_ACCOUNT])
        # Another run may have ended a slice at the same batch that began at another one.
        return earlier if earlier.read == account.read else account

    def _commits_of_keyless(self, batch: TableBatch, stored: TableState, has_other_writers: bool) -> SliceCommits:
        """Returns the commits of this slice that a keyless table holds. Raises Overtaken where another run has merged
        another slice into it."""
        if has_other_writers:
            self._unfinished.require_same(batch, stored)
            self._deliveries.forget(batch.table)
        return self._unfinished.of(batch)

    def follow(self, table: str) -> None:
        """Brings a table to what messages tell of it, if it has no events to merge. Does nothing if it is new."""
        stored = self.table_state(table)
        self._pin_snapshots(table, stored)
        self.table_schemas.told_tables.follow(table, stored, loses_key=True)

    def table_state(self, table: str) -> TableState:
        """Returns the stored state of a table."""
        if table not in self._states:
            history, personal = table in self._rules.history, self._rules.personal.get(table, frozenset())
            tuning = self._rules.tuning
            stored = table_state(self._spark, self._lakehouse, self._pipeline, table, history, personal, tuning)
            for entry in self.table_schemas.entries if personal else ():
                if entry.table_schema.table == table:
                    for part in stored.all_tables:
                        part.disable_personal_statistics(entry.table_schema)
            retry_on_conflict()(self.table_schemas.revisions.bring_up, table, stored)
            self._states[table] = stored
        return self._states[table]

    def _pin_snapshots(self, table: str, stored: TableState) -> bool:
        """Pins the snapshots that the batch's commits are based on. Returns True if another writer has committed since;
        what was remembered of the table is then forgotten."""
        changed_by_others = [part.pin_snapshot(self._writer) for part in stored.all_tables]
        if any(changed_by_others):
            stored.tombstones.refresh()
        if any(changed_by_others) and table in self._loaded:
            self._emptied.forget(table)
            self.table_schemas.told_tables.refresh()
            self.table_schemas.revisions.refresh()
        self._loaded.add(table)
        return any(changed_by_others)

    def take_lease(self, table: str, seconds: float) -> None:
        """Asks other writers of the table to wait for this one's next batch, for at most `seconds`."""
        silver = self.table_state(table).silver
        if silver.exists():
            silver.take_lease(self._writer, seconds)

    def _commit(
        self,
        batch: TableBatch,
        changeset: Changeset | None,
        table_schema: TableSchema,
        stored: TableState,
        account: Account,
    ) -> None:
        slice_end = {WRITER: self._writer, THROUGH_BATCH: batch.through_batch, _ACCOUNT: asdict(account)}
        user_metadata = {} if batch.is_part else slice_end
        quarantine = partial(self._refusals.of_changes, batch)
        if changeset is None:
            commit_nothing(table_schema, stored, user_metadata)
        elif commit_changeset(changeset, table_schema, stored, user_metadata, quarantine):
            self._has_compacted = True

    def _commit_history(
        self,
        row_history: RowHistory | None,
        batch: TableBatch,
        table_schema: TableSchema,
        changes: BatchChanges,
        changeset: Changeset | None,
        truncation: Truncation,
    ) -> None:
        """Adds the batch to the row history, before silver: after a crash in between the same batch does both."""
        if row_history is None:
            return
        applicable = changes(ImageChoice.AFTER_OR_BEFORE).where(F.col(CODE).isNull())
        if changeset is not None and changeset.refused is not None:
            applicable = applicable.join(F.broadcast(changeset.refused.select(EVENT_ID)), EVENT_ID, "left_anti")
        emptied, is_resynced = batch.emptied(self._rules.whole_snapshots), truncation.resynced is not None
        user_metadata = {WRITER: self._writer, THROUGH_BATCH: batch.through_batch}
        row_history.add(applicable, emptied, table_schema, user_metadata, is_resynced)
