"""What a run shows of itself: a table that stays in its place on a terminal; elsewhere some lines, or a JSON object, a
batch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from ingest.changelog.accounting import OUTCOMES, Account
from ingest.cli.printing import verbatim
from ingest.run.pipeline import Progress

NO_TABLE = "(no table)"


@contextmanager
def shown(name: str, as_json: bool, console: Console | None = None) -> Iterator[Callable[[Progress], None]]:
    """Hands out what takes the progress of the pipeline `name`."""
    console = console or verbatim()
    if as_json:
        yield lambda progress: console.out(json.dumps(figures(progress, datetime.now(UTC)), ensure_ascii=False))
    elif console.is_terminal:
        board = _Board(name)
        with Live(board.table(), console=console, auto_refresh=False) as live:

            def show(progress: Progress) -> None:
                board.add(figures(progress, datetime.now(UTC)))
                live.update(board.table(), refresh=True)

            yield show
    else:
        yield lambda progress: console.out("\n".join(_lines(figures(progress, datetime.now(UTC)))))


def figures(progress: Progress, now: datetime) -> dict[str, Any]:
    """`behind`: offsets that the source holds and bronze doesn't. `lag_seconds`: since the newest change that is merged
    was made at its source. Either is absent where it isn't known."""
    read = sum(a.read for a in progress.accounts)
    told: dict[str, Any] = {"captured": progress.captured, "seconds": round(progress.seconds, 3)}
    if progress.seconds:
        told["events_per_second"] = round((read or progress.captured) / progress.seconds, 1)
    if progress.behind is not None:
        told["behind"] = progress.behind
    if progress.newest is not None:
        told["lag_seconds"] = max(0.0, round((now - progress.newest) / timedelta(seconds=1), 3))
    return told | {"tables": {a.table or NO_TABLE: _counts(a) for a in progress.accounts}}


def _counts(account: Account) -> dict[str, int]:
    return {"read": account.read} | {outcome: getattr(account, outcome) for outcome in OUTCOMES}


def _headline(told: dict[str, Any]) -> str:
    parts = [f"captured {told['captured']:,}", f"{told['seconds']:.1f} s"]
    if "events_per_second" in told:
        parts.append(f"{told['events_per_second']:,.0f} events/s")
    if "behind" in told:
        parts.append(f"{told['behind']:,} offsets behind")
    if "lag_seconds" in told:
        parts.append(f"lag {told['lag_seconds']:,.1f} s")
    return ", ".join(parts)


def _lines(told: dict[str, Any]) -> list[str]:
    tables = told["tables"].items()
    counts = [f"  {table}: " + ", ".join(f"{k} {v}" for k, v in c.items() if v) for table, c in tables]
    return [_headline(told), *counts]


@dataclass
class _Line:
    """Of one table, since the run began; and how many events a second the last batch brought."""

    counts: dict[str, int]
    rate: float = 0.0


class _Board:
    """The table on the terminal."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lines: dict[str, _Line] = {}
        self._headline = "waiting for the first batch"

    def add(self, told: dict[str, Any]) -> None:
        self._headline = _headline(told)
        for line in self._lines.values():
            line.rate = 0.0
        for table, counts in told["tables"].items():
            line = self._lines.setdefault(table, _Line(dict.fromkeys(counts, 0)))
            line.counts = {k: line.counts[k] + v for k, v in counts.items()}
            line.rate = counts["read"] / told["seconds"] if told["seconds"] else 0.0

    def table(self) -> Table:
        shown = Table("table", "events/s", "read", *OUTCOMES, title=f"{self._name}: {self._headline}")
        for column in shown.columns[1:]:
            column.justify = "right"
        for name, line in sorted(self._lines.items()):
            shown.add_row(name, f"{line.rate:,.0f}", *(f"{n:,}" for n in line.counts.values()))
        return shown
