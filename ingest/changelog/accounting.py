"""Accounts: the numbers of a table's events in a merged batch, by outcome.

read = applied + superseded + quarantined + suppressed
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

OUTCOMES = ("applied", "superseded", "quarantined", "suppressed")
COUNTS = ("read", *OUTCOMES)
WITHOUT_TABLE = "records of no table"
"""The table name in the account of records without a table: heartbeats, transaction markers, messages, and what can't
be read."""
WAITS, CAUGHT_UP = "set aside", "caught up"
"""Values of `standing`, the state of a table's share of a slice. `WAITS`: its events wait in bronze and are counted as
quarantined. `CAUGHT_UP`: they were merged later, and the counts are differences. None: merged with its slice."""


@dataclass(frozen=True)
class Account:
    """Numbers of events of a table: read = applied + superseded + quarantined + suppressed.

    `applied`: took effect. `superseded`: late, a duplicate, or followed by a newer event in the same batch.
    `quarantined`: can't be applied. `suppressed`: of a table that is not wanted or of an erased subject, or about no
    row.
    """

    table: str
    read: int = 0
    applied: int = 0
    superseded: int = 0
    quarantined: int = 0
    suppressed: int = 0

    def __add__(self, other: Account) -> Account:
        return Account(self.table, *(getattr(self, c) + getattr(other, c) for c in COUNTS))


def by_table(accounts: Iterable[Account]) -> list[Account]:
    """Returns one account per table, the sum of its accounts, sorted by name."""
    sums: dict[str, Account] = {}
    for account in accounts:
        sums[account.table] = sums.get(account.table, Account(account.table)) + account
    return [sums[name] for name in sorted(sums)]
