"""Where commands print."""

from __future__ import annotations

from rich.console import Console


def verbatim(stderr: bool = False, soft_wrap: bool = False) -> Console:
    """A console that shows names and values as they are: `[a-z]` and `:key:` may stand in any of them."""
    return Console(markup=False, emoji=False, highlight=False, stderr=stderr, soft_wrap=soft_wrap)
