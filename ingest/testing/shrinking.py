"""Shrinks a failing changelog by leaving out events as long as it still fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ingest.testing.oracle import Event

Fails = Callable[[Sequence[list[Event]]], Sequence[bool]]
"""Returns for each of several changelogs whether it fails. It gets many at once, so that they can share a Spark job."""


def smallest(events: Sequence[Event], fails: Fails) -> list[Event]:
    """Returns a failing part of `events`, which must fail, from which no single event can be left out."""
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
