"""Sets a table aside that can't be merged, so that it stops no other one. Its events wait in bronze and are in
quarantine with the reason; the accounts say from which batch on. A later run merges them, slice by slice, by the same
code.

The accounts are the only record: a table is set aside while they hold slices of it that wait.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.batches.group_stats import TABLE_OPS
from ingest.batches.table_batch import TableBatch
from ingest.changelog.accounting import COUNTS, Account
from ingest.errors import ChangelogUnusable
from ingest.lakehouse.accounts import Accounts, SetAside, WaitingShare, WaitingSlice
from ingest.lakehouse.quarantine import SET_ASIDE, Quarantine
from ingest.loop.table_faults import Reason

_log = logging.getLogger(__name__)

_ATTEMPT_ROWS = 1000
"""Most waiting slices that are read for one slice of catching up."""


class SetAsideTables:
    """The tables of one writer that are set aside."""

    def __init__(self, accounts: Accounts, quarantine: Quarantine) -> None:
        self._accounts = accounts
        self._quarantine = quarantine
        self._recorded = accounts.set_aside()
        self._new_reasons: dict[str, Reason] = {}
        self._untried = set(self._recorded)
        self.fault: BaseException | None = None
        """The last error raised."""

    def __contains__(self, table: str) -> bool:
        return table in self._recorded or table in self._new_reasons

    @property
    def known(self) -> dict[str, SetAside]:
        """Returns the tables that the accounts list as set aside, by name."""
        return dict(self._recorded)

    def refresh(self) -> None:
        """Reads the accounts again: a rebuild may have mended a table."""
        if self._recorded and not self._accounts.is_unchanged():
            found = self._accounts.set_aside()
            caught_up_since = {t for t, s in found.items() if t in self._recorded and s.after > self._recorded[t].after}
            self._recorded, self._untried = found, self._untried | caught_up_since

    def set_aside(self, batch: TableBatch, reason: Reason) -> Account:
        """Sets the table aside from this batch on. Returns the batch's account."""
        _log.error("%s is set aside from batch %d on: %s", batch.table, batch.through_batch, reason.text)
        self._new_reasons[batch.table] = reason
        self.fault = reason.fault
        return self.leave(batch)

    def leave(self, batch: TableBatch) -> Account:
        """Leaves a batch of a table that is set aside in bronze, and puts its events into quarantine. Returns its
        account."""
        reason = self._reason(batch.table)
        rows = reduce(DataFrame.unionByName, _events(batch))
        columns = {"table": F.lit(batch.table), "code": F.lit(SET_ASIDE), "reason": F.lit(reason.text)}
        self._quarantine.add(rows.withColumns(columns), waiting=True)
        new = 0 if batch.tombstones is None else batch.tombstones.count()
        repeated = batch.tombstone_count - new
        read, suppressed = batch.count + batch.suppressed + batch.quarantined, batch.suppressed
        return Account(batch.table, read, 0, repeated, read - repeated - suppressed, suppressed)

    def shares(self, accounts: Sequence[Account]) -> list[WaitingShare]:
        """Returns the accounts of tables that are set aside, with their reasons."""
        reasons = ((account, self._reason(account.table)) for account in accounts)
        return [WaitingShare(account, reason.code, reason.text) for account, reason in reasons]

    def accounted(self) -> None:
        """Takes note that the accounts of a slice are stored. To be called once they are."""
        if self._new_reasons:
            self._recorded, self._new_reasons = self._accounts.set_aside(), {}

    def next(self) -> str | None:
        """Returns a table that may be able to go on; None where there is none."""
        return min(self._untried & self._recorded.keys(), default=None)

    def give_up(self, table: str, why: str, fault: BaseException | None = None) -> None:
        """Leaves the table set aside: it is not tried again before a rebuild has mended it, or another run starts."""
        _log.error("%s stays set aside: %s", table, why)
        self.fault = fault or self.fault
        self._untried.discard(table)

    def slice_of(self, table: str, max_events: int, unfinished: int | None) -> list[WaitingSlice]:
        """Returns the waiting slices that the table merges next: about `max_events` events; or those through the batch
        `unfinished`, where an interrupted run has begun to merge through it."""
        chosen: list[WaitingSlice] = []
        events = 0
        for share in self._accounts.waiting(table, _ATTEMPT_ROWS):
            beyond = (
                share.through_batch > unfinished if unfinished is not None else events + share.account.read > max_events
            )
            if chosen and beyond:
                break
            chosen.append(share)
            events += share.account.read
        return chosen

    def begun_slice(self, table: str, after: int) -> int | None:
        """Returns the last batch of the slice after `after` that a run has begun to catch up with; None where none
        has."""
        return self._accounts.begun_slice(after, table)

    def begin_slice(self, table: str, shares: Sequence[WaitingSlice]) -> None:
        """Records which waiting slices are merged next. Raises Overtaken where another run has begun or merged
        others."""
        self._accounts.begin_slice(shares[0].after, shares[-1].through_batch, table)

    def caught_up(self, table: str, shares: Sequence[WaitingSlice], merged: Account) -> None:
        """Replaces the accounts of waiting slices by that of their merge, and removes their events from quarantine,
        except those that the merge has quarantined."""
        after, through_batch = shares[0].after, shares[-1].through_batch
        self._quarantine.release(table, after, through_batch)
        before = reduce(Account.__add__, (share.account for share in shares))
        change = Account(table, *(getattr(merged, c) - getattr(before, c) for c in COUNTS))
        if change.read:  # An erasure has emptied some of the events meanwhile.
            change = replace(change, read=0, suppressed=change.suppressed - change.read)
        self._accounts.catch_up(after, through_batch, change)
        self._recorded = self._accounts.set_aside()
        if table not in self._recorded:
            _log.warning("%s has caught up: it is set aside no longer", table)
            self._untried.discard(table)

    def _reason(self, table: str) -> Reason:
        if table in self._new_reasons:
            return self._new_reasons[table]
        return Reason(self._recorded[table].code, self._recorded[table].reason)


def _events(batch: TableBatch) -> Iterator[DataFrame]:
    """Yields the events of a batch that concern its rows, without null tombstones that repeat a delete."""
    is_of_table = (F.col("source_table") == batch.table) & F.col("op").isin(*TABLE_OPS)
    yield batch.events.where(is_of_table)
    if batch.tombstones is not None:
        yield batch.tombstones


def require_all_merged(pipeline: str, aside: Mapping[str, SetAside], fault: BaseException | None = None) -> None:
    """Raises ChangelogUnusable where tables are set aside: a person must act, though the others have gone on. `fault`:
    the last error raised."""
    if not aside:
        return
    found = [f"{one.reason} ({one.events:,} events wait from batch {one.after + 1} on)" for one in aside.values()]
    raise ChangelogUnusable(
        f"pipeline {pipeline}: {len(aside)} of its tables are set aside, the others went on. " + "; ".join(found),
        "once the cause is mended the same command merges what waits",
    ) from fault
