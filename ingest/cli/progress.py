"""Shows the progress of a run, batch by batch: a table that is updated in place on a terminal, else lines of text or a
JSON object."""

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

from ingest.changelog.accounting import OUTCOMES, WITHOUT_TABLE, Account
from ingest.cli.printing import plain_console
from ingest.cli.start import count_text
from ingest.pipeline.composition import Progress

_LEGEND = (
    "applied: took effect · superseded: late, duplicate, or followed by a newer event · "
    "quarantined: kept with a reason · suppressed: excluded, erased, or about no row"
)


@contextmanager
def progress_display(name: str, as_json: bool, console: Console | None = None) -> Iterator[Callable[[Progress], None]]:
    """Yields a function that shows the progress of the pipeline `name`."""
    console = console or plain_console()
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
    """Returns the figures of one batch.

    `behind`: offsets that the source holds and bronze doesn't. `lag_seconds`: the age of the newest merged change since
    it was made at its source. Either is absent if it isn't known. `without_table`: counts of records that belong to no
    table.
    """
    read = sum(a.read for a in progress.accounts)
    found: dict[str, Any] = {"captured": progress.captured, "seconds": round(progress.seconds, 3)}
    if progress.seconds and (events := read or progress.captured):
        found["events_per_second"] = round(events / progress.seconds, 1)
    if progress.behind is not None:
        found["behind"] = progress.behind
    if progress.newest is not None:
        found["lag_seconds"] = max(0.0, round((now - progress.newest) / timedelta(seconds=1), 3))
    found["tables"] = {a.table: _counts(a) for a in progress.accounts if a.table}
    for others in (a for a in progress.accounts if not a.table):
        found["without_table"] = _counts(others)
    return found


def _counts(account: Account) -> dict[str, int]:
    return {"read": account.read} | {outcome: getattr(account, outcome) for outcome in OUTCOMES}


def _named(found: dict[str, Any]) -> dict[str, dict[str, int]]:
    """Returns the counts of each table, and those of records without a table under WITHOUT_TABLE."""
    named: dict[str, dict[str, int]] = dict(found["tables"])
    if "without_table" in found:
        named[WITHOUT_TABLE] = found["without_table"]
    return named


def _headline(found: dict[str, Any]) -> str:
    merged = sum(counts["read"] for counts in _named(found).values())
    done = [f"captured {count_text(found['captured'], 'record')}"] if found["captured"] else []
    done += [f"merged {count_text(merged, 'event')}"] if merged else []
    rate = f" ({found['events_per_second']:,.0f} a second)" if "events_per_second" in found else ""
    parts = [f"{', '.join(done) or 'merged no event'} in {found['seconds']:.1f} s{rate}"]
    if not merged and done:
        parts.append("none merged yet")
    if "behind" in found:
        parts.append(f"{count_text(found['behind'], 'record')} behind")
    if "lag_seconds" in found:
        parts.append(f"newest change {found['lag_seconds']:,.1f} s old")
    return ", ".join(parts)


def _lines(found: dict[str, Any]) -> list[str]:
    tables = _named(found).items()
    counts = [(table, ", ".join(f"{k} {v:,}" for k, v in c.items() if v)) for table, c in tables]
    return [_headline(found), *(f"  {table}: {text or 'nothing'}" for table, text in counts)]


@dataclass
class _Line:
    """`counts`: of one table since the run began. `last`: how many of its events the last batch held."""

    counts: dict[str, int]
    last: int = 0


class _Board:
    """The table on the terminal."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lines: dict[str, _Line] = {}
        self._headline = "waiting for the first batch"

    def add(self, found: dict[str, Any]) -> None:
        """Adds the figures of one batch."""
        self._headline = _headline(found)
        for line in self._lines.values():
            line.last = 0
        for table, counts in _named(found).items():
            line = self._lines.setdefault(table, _Line(dict.fromkeys(counts, 0)))
            line.counts = {k: line.counts[k] + v for k, v in counts.items()}
            line.last = counts["read"]

    def table(self) -> Table:
        title = f"{self._name}: {self._headline}"
        shown = Table("table", "last batch", "read", *OUTCOMES, title=title, caption=_LEGEND)
        for column in shown.columns[1:]:
            column.justify = "right"
        for name, line in sorted(self._lines.items(), key=lambda named: (named[0] == WITHOUT_TABLE, named[0])):
            shown.add_row(name, f"{line.last:,}" if line.last else "none", *(f"{n:,}" for n in line.counts.values()))
        return shown
