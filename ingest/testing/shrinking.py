"""Shrinks a failing changelog by leaving out events as long as it still fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ingest.testing.oracle import Event

Fails = Callable[[Sequence[list[Event]]], Sequence[bool]]
"""Returns for each of several changelogs whether it fails. It gets many at once, so that they can share a Spark job."""


def shrink(events: Sequence[Event], fails: Fails) -> list[Event]:
    """Returns a failing part of `events`, which must fail, from which no single event can be left out."""
    remaining = list(events)
    run = max(len(remaining) // 2, 1)
    while remaining:
        candidates = [remaining[:at] + remaining[at + run :] for at in range(0, len(remaining), run)]
        smaller = next((c for c, bad in zip(candidates, fails(candidates), strict=True) if bad), None)
        if smaller is not None:
            remaining = smaller
        elif run == 1:
            return remaining
        else:
            run //= 2
    return remaining
