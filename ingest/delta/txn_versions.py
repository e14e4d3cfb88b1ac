"""Marks in a table's log: how far each application has come, and claims.

Who has judged a batch in vain, because another writer was faster, claims the next turn: the others wait. A claim ends
by itself should its writer die. Nothing depends on it but who waits; that no batch builds on what another one has
changed is seen at the commit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_LEASE = "claim of "
_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class TxnVersion:
    """How far an application has come, kept in the very commit that took it there. `alone`: nobody else may be there
    already. `after`: where it comes from; the commit fails where the application is further by then."""

    application: str
    version: int
    alone: bool = True
    after: int | None = None


def lease_of(application: str) -> str:
    """The application whose progress is the end of the claim, in milliseconds since 1970."""
    return _LEASE + application


def lease_end(seconds: float) -> int:
    return int((time.time() + seconds) * 1000)


def await_leases(snapshot: Callable[[], Any], marks: Callable[[Any], Mapping[str, int]], application: str) -> Any:
    """Waits for those that have claimed their turn. The table's newest snapshot then. `marks`: of a snapshot, how far
    each application has come."""
    newest = snapshot()
    while _is_leased(marks(newest), application):
        time.sleep(_POLL_SECONDS)
        newest = snapshot()
    return newest


def _is_leased(marks: Mapping[str, int], application: str) -> bool:
    now = time.time() * 1000
    return any(name.startswith(_LEASE) and name != lease_of(application) and end > now for name, end in marks.items())
