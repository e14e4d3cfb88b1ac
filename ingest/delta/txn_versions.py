"""Versions of applications in a table's log (Delta's `txn` actions), and leases.

A `TxnVersion` is committed with the data that it describes. A lease is one too: its version is the time at which it
ends. A writer that lost two conflicts in a row takes a lease, and the others wait before they begin their next batch. A
lease expires by itself if its writer dies. Correctness does not depend on leases: a batch that builds on an outdated
snapshot fails at its commit.
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
    """The version that an application reaches with a commit. `must_advance`: the commit fails if the application has
    reached this version already. `after`: the version it comes from; the commit fails if the application is past it."""

    application: str
    version: int
    must_advance: bool = True
    after: int | None = None


def lease_of(application: str) -> str:
    """Returns the application whose version is the end of the lease, in milliseconds since 1970."""
    return _LEASE + application


def lease_end(seconds: float) -> int:
    """Returns the time in `seconds` from now, in milliseconds since 1970."""
    return int((time.time() + seconds) * 1000)


def await_leases(newest: Callable[[], Any], versions_of: Callable[[Any], Mapping[str, int]], application: str) -> Any:
    """Waits until no other application holds a lease, and returns the table's newest snapshot then. `versions_of`:
    returns application → version of a snapshot."""
    snapshot = newest()
    while _is_leased(versions_of(snapshot), application):
        time.sleep(_POLL_SECONDS)
        snapshot = newest()
    return snapshot


def _is_leased(versions: Mapping[str, int], application: str) -> bool:
    now = time.time() * 1000
    return any(
        name.startswith(_LEASE) and name != lease_of(application) and end > now for name, end in versions.items()
    )
