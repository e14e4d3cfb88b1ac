"""Shrinks a failing changelog by leaving out events, or a failing table by leaving out statements, as long as it still
fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Part = TypeVar("Part")


def shrink(parts: Sequence[Part], fails: Callable[[Sequence[list[Part]]], Sequence[bool]]) -> list[Part]:
    """Returns some of `parts`, which fail together, from which no single one can be left out.

    `parts`: the events of a changelog, or the statements of a table (`tables.interpret`). `fails`: returns for each of
    several candidates whether it fails. It gets many at once, so that they can share a Spark job."""
    remaining = list(parts)
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
