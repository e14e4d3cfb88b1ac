"""Progress bars of long work: shown on a terminal only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ingest.changelog.accounting import Account
from ingest.cli.printing import plain_console


@contextmanager
def event_bar(as_json: bool, events: Callable[[], int] | None = None) -> Iterator[Callable[[Sequence[Account]], None]]:
    """Yields a function that advances the bar by the accounts of one merged slice. `events` returns the total of
    events."""
    with progress_bar("events", as_json, events) as advance:
        yield lambda accounts: advance(sum(a.read for a in accounts))


@contextmanager
def progress_bar(
    unit: str, as_json: bool, total: Callable[[], int] | None = None, console: Console | None = None
) -> Iterator[Callable[[int], None]]:
    """Yields a function that advances the bar by a number of finished `unit`. `total` returns the number in all."""
    console = console or plain_console(stderr=True)
    if as_json or not console.is_terminal:
        yield lambda done: None
        return
    columns = (TextColumn(unit), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as shown:
        task = shown.add_task(unit, total=total() if total else None)
        yield lambda done: shown.advance(task, done)
