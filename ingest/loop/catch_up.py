"""Merges what a table that was set aside has missed, slice by slice, while the other tables go on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce

from pyspark.sql import DataFrame

from ingest.batches.deliveries import EarlierReaders
from ingest.batches.rules import Rules
from ingest.batches.schemas import Schemas
from ingest.batches.table_batch import TableBatch
from ingest.changelog.accounting import Account
from ingest.lakehouse.accounts import WaitingSlice
from ingest.lakehouse.backfills import REBUILD, Backfills
from ingest.lakehouse.bronze import Bronze
from ingest.loop.set_aside import SetAsideTables
from ingest.loop.slices import Slices
from ingest.loop.suppression.suppress import Suppression
from ingest.loop.table_faults import FAULTS, reason_of
from ingest.loop.table_merge import TableMerge
from ingest.spark.checkpoints import checkpoint_scope

MergeTable = Callable[[Schemas, TableBatch], Account]


class CatchUp:
    """The catching up of one writer's tables. A run tries each table once, from its start on and as long as it
    succeeds."""

    def __init__(
        self,
        bronze: Bronze,
        rules: Rules,
        tables: TableMerge,
        suppression: Suppression,
        set_aside: SetAsideTables,
        slice_events: int,
        backfills: Backfills,
        earlier_readers: EarlierReaders | None,
        other_readers: Callable[[], DataFrame | None],
    ) -> None:
        """`slice_events`: about the number of events in a slice. `backfills`: a table that one of them rebuilds is left
        to it."""
        self._bronze = bronze
        self._rules = rules
        self._tables = tables
        self._suppression = suppression
        self._set_aside = set_aside
        self._slice_events = slice_events
        self._backfills = backfills
        self._earlier_readers = earlier_readers
        self._other_readers = other_readers
        self._unfinished: dict[str, int | None] = {}
        self._slices: dict[str, Slices] = {}

    def step(self, merge: MergeTable) -> list[Account]:
        """Returns the account of a slice of one table; empty where no table can go on."""
        while (table := self._set_aside.next()) is not None:
            if self._is_rebuilt(table):
                self._set_aside.give_up(table, "it is being rebuilt")
                continue
            try:
                return [self._next_slice(table, merge)]
            except FAULTS as error:
                reason = reason_of(table, error)
                if reason is None:
                    raise
                self._set_aside.give_up(table, reason.text, reason.fault)
        return []

    def _next_slice(self, table: str, merge: MergeTable) -> Account:
        if table not in self._unfinished:
            after = self._set_aside.known[table].after
            known = self._tables.unfinished_slice_of(table, after)
            self._unfinished[table] = self._set_aside.begun_slice(table, after) or known
        shares = self._set_aside.slice_of(table, self._slice_events, self._unfinished[table])
        self._set_aside.begin_slice(table, shares)
        with checkpoint_scope():
            account = self._merge_slice(table, shares, merge)
        self._unfinished[table] = None
        self._set_aside.caught_up(table, shares, account)
        return account

    def _is_rebuilt(self, table: str) -> bool:
        """Returns whether a rebuild of the table is under way or was interrupted."""
        requests = [b.request for b in self._backfills.all() if b.ended_at is None]
        return any(a.get("source") == REBUILD and table in (a["tables"] or [table]) for a in requests)

    def _merge_slice(self, table: str, shares: list[WaitingSlice], merge: MergeTable) -> Account:
        """Merges the table's share of the batches of a slice. Returns its account."""
        waiting_account = reduce(Account.__add__, (share.account for share in shares))
        rules = replace(self._rules, only=frozenset({table}))
        if not rules.takes(table):
            return Account(table, waiting_account.read, suppressed=waiting_account.read)
        after, through_batch = shares[0].after, shares[-1].through_batch
        if table not in self._slices:
            self._slices[table] = Slices(
                self._bronze,
                rules,
                self._tables.table_schemas,
                self._slice_events,
                earlier_readers=self._earlier_readers,
                other_readers=self._other_readers,
            )
        slices = self._slices[table]
        read = slices.read(after, through_batch, slices.group_stats(after, through_batch, through_batch))
        batches = self._suppression.without_suppressed(read.batches, slices.schemas, _raise)
        accounts = [merge(slices.schemas, batch) for batch in batches]
        return reduce(Account.__add__, accounts, Account(table))


def _raise(_: str, error: Exception) -> None:
    raise error
