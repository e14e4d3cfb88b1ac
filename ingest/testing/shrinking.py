"""A failing changelog made small: events are left out as long as it still fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ingest.testing.oracle import Event

Fails = Callable[[Sequence[list[Event]]], Sequence[bool]]
"""Of each of several changelogs: does it fail? Asked for many at once, since they may share a Spark job."""


def smallest(events: Sequence[Event], fails: Fails) -> list[Event]:
    """A changelog that fails and of which no event can be left out. `events` itself must fail."""
    kept = list(events)
    run = max(len(kept) // 2, 1)
    while kept:
        candidates = [kept[:at] + kept[at + run :] for at in range(0, len(kept), run)]
        found = next((c for c, bad in zip(candidates, fails(candidates), strict=True) if bad), None)
        if found is not None:
            kept = found
        elif run == 1:
            return kept
        else:
            run //= 2
    return kept
