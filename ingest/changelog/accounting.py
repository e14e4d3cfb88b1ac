"""Accounts: what became of the events of a table in a merged batch.

read = applied + superseded + quarantined + suppressed
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

OUTCOMES = ("applied", "superseded", "quarantined", "suppressed")
COUNTS = ("read", *OUTCOMES)
WITHOUT_TABLE = "records of no table"
"""What is shown in place of a table's name: heartbeats, transaction markers, messages, and what can't be read."""
WAITS, CAUGHT_UP = "set aside", "caught up"
"""The `standing` of a table's share of a slice: its events wait in bronze, counted as quarantined; or they were merged
later, and the counts are what that changed. None: it was merged with its slice."""


@dataclass(frozen=True)
class Account:
    """`applied`: took effect. `superseded`: late, doubled, or followed by something newer in the same batch.
    `quarantined`: can't be applied. `suppressed`: not wanted, kept away by an erasure, or says nothing of any
    row."""

    table: str
    read: int = 0
    applied: int = 0
    superseded: int = 0
    quarantined: int = 0
    suppressed: int = 0

    def __add__(self, other: Account) -> Account:
        return Account(self.table, *(getattr(self, c) + getattr(other, c) for c in COUNTS))


def by_table(accounts: Iterable[Account]) -> list[Account]:
    """One account per table, by its name."""
    sums: dict[str, Account] = {}
    for account in accounts:
        sums[account.table] = sums.get(account.table, Account(account.table)) + account
    return [sums[name] for name in sorted(sums)]
