"""A table that can't be merged as it is stops no other one: it is set aside. Its events wait in bronze and stand in
quarantine with the reason, and the accounts say from which batch on. A later run merges them, slice by slice, by the
same code as ever.

The accounts are the only record: a table is set aside where shares of slices wait that it has not caught up with.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.batches.table_batch import TableBatch
from ingest.changelog.accounting import COUNTS, Account
from ingest.changelog.envelope import CHANGES
from ingest.errors import ChangelogUnusable
from ingest.lakehouse.accounts import Accounts, SetAside, WaitingShare, WaitingSlice
from ingest.lakehouse.quarantine import SET_ASIDE, Quarantine
from ingest.loop.table_faults import Reason

_log = logging.getLogger(__name__)

_ATTEMPT_ROWS = 1000
"""So many shares of slices are looked at when a table catches up by one slice."""


class TablesAside:
    """The tables of one writer that are set aside."""

    def __init__(self, accounts: Accounts, quarantine: Quarantine) -> None:
        self._accounts = accounts
        self._quarantine = quarantine
        self._known = accounts.set_aside()
        self._fresh: dict[str, Reason] = {}
        self._untried = set(self._known)
        self.fault: BaseException | None = None
        """What was raised last."""

    def __contains__(self, table: str) -> bool:
        return table in self._known or table in self._fresh

    @property
    def known(self) -> dict[str, SetAside]:
        """Returns those that the accounts have, by name."""
        return dict(self._known)

    def refresh(self) -> None:
        """Asks the accounts again: a rebuild may have mended a table."""
        if self._known and not self._accounts.is_unchanged():
            found = self._accounts.set_aside()
            moved = {t for t, s in found.items() if t in self._known and s.after > self._known[t].after}
            self._known, self._untried = found, self._untried | moved

    def set_aside(self, batch: TableBatch, reason: Reason) -> Account:
        """Leaves the batch in bronze from here on, because of `reason`."""
        _log.error("%s is set aside from batch %d on: %s", batch.table, batch.upto, reason.text)
        self._fresh[batch.table] = reason
        self.fault = reason.fault
        return self.leave(batch)

    def leave(self, batch: TableBatch) -> Account:
        """Puts the events of a table that is set aside into quarantine. They wait in bronze."""
        reason = self._reason(batch.table)
        rows = reduce(DataFrame.unionByName, _events(batch))
        told = {"table": F.lit(batch.table), "code": F.lit(SET_ASIDE), "reason": F.lit(reason.text)}
        self._quarantine.add(rows.withColumns(told), waiting=True)
        new = 0 if batch.tombstones is None else batch.tombstones.count()
        repeated = batch.tombstone_count - new
        read, away = batch.count + batch.suppressed + batch.held, batch.suppressed
        return Account(batch.table, read, 0, repeated, read - repeated - away, away)

    def shares(self, accounts: Sequence[Account]) -> list[WaitingShare]:
        """Returns accounts of tables that are set aside as they are kept."""
        reasons = ((account, self._reason(account.table)) for account in accounts)
        return [WaitingShare(account, reason.code, reason.text) for account, reason in reasons]

    def accounted(self) -> None:
        """To be called once the accounts of a slice are kept."""
        if self._fresh:
            self._known, self._fresh = self._accounts.set_aside(), {}

    def next(self) -> str | None:
        """Returns a table that may be able to go on."""
        return min(self._untried & self._known.keys(), default=None)

    def give_up(self, table: str, why: str, fault: BaseException | None = None) -> None:
        """The table can't go on. It is not tried again before a rebuild has mended it, or another run starts."""
        _log.error("%s stays set aside: %s", table, why)
        self.fault = fault or self.fault
        self._untried.discard(table)

    def slice_of(self, table: str, most: int, begun: int | None) -> list[WaitingSlice]:
        """Returns the shares that the table merges next: about `most` events; up to the batch `begun`, where a run that
        died has begun to merge up to there."""
        chosen: list[WaitingSlice] = []
        events = 0
        for share in self._accounts.waiting(table, _ATTEMPT_ROWS):
            beyond = share.upto > begun if begun is not None else events + share.account.read > most
            if chosen and beyond:
                break
            chosen.append(share)
            events += share.account.read
        return chosen

    def begun_slice(self, table: str, after: int) -> int | None:
        """Returns the last batch of the slice after `after` that a run has begun to catch up by; None where none."""
        return self._accounts.begun_slice(after, table)

    def begin_slice(self, table: str, shares: Sequence[WaitingSlice]) -> None:
        """Records which shares are merged next. Raises Overtaken where another run has begun or merged others."""
        self._accounts.begin_slice(shares[0].after, shares[-1].upto, table)

    def caught_up(self, table: str, shares: Sequence[WaitingSlice], now: Account) -> None:
        """Accounts for shares of slices that the table has merged, in place of what stood there, and takes their events
        out of quarantine, but for those that are there for themselves."""
        after, upto = shares[0].after, shares[-1].upto
        self._quarantine.release(table, after, upto)
        before = reduce(Account.__add__, (share.account for share in shares))
        change = Account(table, *(getattr(now, c) - getattr(before, c) for c in COUNTS))
        if change.read:  # An erasure has emptied some events since.
            change = replace(change, read=0, suppressed=change.suppressed - change.read)
        self._accounts.catch_up(after, upto, change)
        self._known = self._accounts.set_aside()
        if table not in self._known:
            _log.warning("%s has caught up: it is set aside no longer", table)
            self._untried.discard(table)

    def _reason(self, table: str) -> Reason:
        if table in self._fresh:
            return self._fresh[table]
        return Reason(self._known[table].code, self._known[table].reason)


def _events(batch: TableBatch) -> Iterator[DataFrame]:
    """The events of a batch that say something of its rows, without null tombstones that repeat a delete."""
    own = (F.col("source_table") == batch.table) & F.col("op").isin(*CHANGES, "t")
    yield batch.events.where(own)
    if batch.tombstones is not None:
        yield batch.tombstones


def require_all_merged(pipeline: str, aside: Mapping[str, SetAside], fault: BaseException | None = None) -> None:
    """Raises ChangelogUnusable where tables are set aside: a person must act, though the others have gone on. `fault`:
    what was raised last."""
    if not aside:
        return
    found = [f"{one.reason} ({one.events:,} events wait from batch {one.after + 1} on)" for one in aside.values()]
    raise ChangelogUnusable(
        f"pipeline {pipeline}: {len(aside)} of its tables are set aside, the others went on. " + "; ".join(found),
        "once the cause is mended the same command merges what waits",
    ) from fault
