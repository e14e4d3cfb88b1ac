"""The demo's output: a live table on a terminal, otherwise plain lines."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from ingest.demo.lakehouse import LagPercentiles

_LINE_EVERY_SECONDS = 3.0
_SHOWN = ("status", "happened_on", "amount_claimed", "amount_paid", "damaged_parts", "details", "revision")


@dataclass
class Numbers:
    """The current counts: changes committed to the source by op, captured records, outcomes of events, rows by
    table."""

    committed: Mapping[str, int] = field(default_factory=dict)
    captured: int = 0
    accounts: dict[str, int] = field(default_factory=dict)
    silver_rows: dict[str, int] = field(default_factory=dict)
    lag: LagPercentiles | None = None

    def lines(self) -> dict[str, str]:
        """Returns label → value."""
        lag = f"p50 {self.lag.p50:.1f} s, p95 {self.lag.p95:.1f} s" if self.lag else "not yet"
        return {
            "source changes": _listed(self.committed),
            "bronze events": str(self.captured),
            "silver rows": _listed(self.silver_rows),
            "events": _listed({name: n for name, n in self.accounts.items() if name != "read"}),
            "lag": lag,
        }


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in dict(counts).items()) or "none"


class Display:
    """Shows progress. As a context manager it shows the live table for its duration."""

    def __init__(self, console: Console) -> None:
        """`console`: without markup and highlighting."""
        self._console = console
        self._numbers: Numbers | None = None
        self._step = ""
        self._step_began = 0.0
        self._line_at = 0.0
        self._live = Live(console=console, get_renderable=self._picture, refresh_per_second=4, transient=True)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live.is_started:
            self._live.stop()

    def say(self, text: str = "") -> None:
        self._console.print(text, soft_wrap=True)

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Announces the step `what`, and prints its duration at the end."""
        self._step, self._step_began = what, time.monotonic()
        if not self._live.is_started:
            self.say(f"{what} …")
        try:
            yield
        finally:
            self._step = ""
        self.say(f"{what}: {time.monotonic() - self._step_began:.1f} s")

    def show(self, numbers: Numbers, now: bool = False) -> None:
        """Shows the newest numbers; as plain lines only every few seconds, unless `now`."""
        self._numbers = numbers
        if self._live.is_started:
            return
        if now or time.monotonic() - self._line_at > _LINE_EVERY_SECONDS:
            self._line_at = time.monotonic()
            self.say("; ".join(f"{label}: {value}" for label, value in numbers.lines().items()))

    def chapter(self, number: int, title: str, row: Mapping[str, Any] | None) -> None:
        """Prints a chapter of the story with the claim's row in silver."""
        self.say(f"claim {number} {title} in silver: {'no row' if row is None else _values(row)}")

    def _picture(self) -> Table:
        table = Table(show_header=False, title="claims → silver")
        if self._step:
            table.add_row(self._step, f"{time.monotonic() - self._step_began:.0f} s")
        for label, value in self._numbers.lines().items() if self._numbers else ():
            table.add_row(label, value)
        return table


def _values(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={row[name]}" for name in _SHOWN)
