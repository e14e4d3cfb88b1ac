"""Merging what a table that was set aside has missed: its share of bronze, slice by slice, while the others go on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce

from ingest.batches.deliveries import EarlierReaders
from ingest.batches.rules import Rules
from ingest.batches.schemas import Schemas
from ingest.batches.table_batch import TableBatch
from ingest.changelog.accounting import Account
from ingest.lakehouse.accounts import WaitingSlice
from ingest.lakehouse.backfills import REBUILD, Backfills
from ingest.lakehouse.bronze import Bronze
from ingest.loop.set_aside import TablesAside
from ingest.loop.slices import Slices
from ingest.loop.suppress import Suppression
from ingest.loop.table_faults import FAULTS, reason_of
from ingest.loop.table_merge import TableMerge
from ingest.spark.checkpoints import checkpoint_scope

Merged = Callable[[Schemas, TableBatch], Account]


class CatchUp:
    """Of one writer's tables. A run tries each of them once, from its start on for as long as it succeeds."""

    def __init__(
        self,
        bronze: Bronze,
        rules: Rules,
        tables: TableMerge,
        fencing: Suppression,
        aside: TablesAside,
        most: int,
        backfills: Backfills,
        elsewhere: EarlierReaders | None,
    ) -> None:
        """`most`: about so many events are in a slice. `backfills`: a rebuild among them mends the table itself."""
        self._bronze = bronze
        self._rules = rules
        self._tables = tables
        self._fencing = fencing
        self._aside = aside
        self._most = most
        self._backfills = backfills
        self._elsewhere = elsewhere
        self._begun: dict[str, int | None] = {}
        self._slices: dict[str, Slices] = {}

    def step(self, merge: Merged) -> list[Account]:
        """Returns the account of a slice of one table; empty where no table can go on."""
        while (table := self._aside.next()) is not None:
            if self._is_rebuilt(table):
                self._aside.give_up(table, "it is being rebuilt")
                continue
            try:
                return [self._next_slice(table, merge)]
            except FAULTS as error:
                reason = reason_of(table, error)
                if reason is None:
                    raise
                self._aside.give_up(table, reason.text, reason.fault)
        return []

    def _next_slice(self, table: str, merge: Merged) -> Account:
        if table not in self._begun:
            after = self._aside.known[table].after
            known = self._tables.begun_in(table, after)
            self._begun[table] = self._aside.begun_slice(table, after) or known
        shares = self._aside.slice_of(table, self._most, self._begun[table])
        self._aside.begin_slice(table, shares)
        with checkpoint_scope():
            now = self._merged(table, shares, merge)
        self._begun[table] = None
        self._aside.caught_up(table, shares, now)
        return now

    def _is_rebuilt(self, table: str) -> bool:
        """Whether a rebuild of the table is under way, or died: it goes on where it stood."""
        asked = [b.asked for b in self._backfills.all() if b.ended_at is None]
        return any(a.get("source") == REBUILD and table in (a["tables"] or [table]) for a in asked)

    def _merged(self, table: str, shares: list[WaitingSlice], merge: Merged) -> Account:
        """Merges the table's share of the batches of a slice. Returns its account."""
        waited = reduce(Account.__add__, (share.account for share in shares))
        rules = replace(self._rules, only=frozenset({table}))
        if not rules.takes(table):
            return Account(table, waited.read, suppressed=waited.read)
        after, upto = shares[0].after, shares[-1].upto
        if table not in self._slices:
            self._slices[table] = Slices(
                self._bronze, rules, self._tables.table_schemas, self._most, elsewhere=self._elsewhere
            )
        slices = self._slices[table]
        read = slices.read(after, upto, slices.profile(after, upto, upto))
        batches = self._fencing.without_old_lives(read.batches, slices.schemas, _raised)
        accounts = [merge(slices.schemas, batch) for batch in batches]
        return reduce(Account.__add__, accounts, Account(table))


def _raised(_: str, error: Exception) -> None:
    raise error
