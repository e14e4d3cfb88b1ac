"""Accounts: the numbers of a table's events in a merged batch, by outcome.

read = applied + superseded + quarantined + suppressed
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

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
    row. `ignored`: (change of the table, number of events that it had no effect on) by its schema policy; such events
    are also counted in the others.
    """

    table: str
    read: int = 0
    applied: int = 0
    superseded: int = 0
    quarantined: int = 0
    suppressed: int = 0
    ignored: Sequence[Sequence[Any]] = ()

    def __add__(self, other: Account) -> Account:
        ignored: dict[str, int] = {}
        for change, events in (*self.ignored, *other.ignored):
            ignored[change] = ignored.get(change, 0) + events
        counts = {c: getattr(self, c) + getattr(other, c) for c in COUNTS}
        return Account(self.table, **counts, ignored=tuple(ignored.items()))


def by_table(accounts: Iterable[Account]) -> list[Account]:
    """Returns one account per table, the sum of its accounts, sorted by name."""
    sums: dict[str, Account] = {}
    for account in accounts:
        sums[account.table] = sums.get(account.table, Account(account.table)) + account
    return [sums[name] for name in sorted(sums)]
