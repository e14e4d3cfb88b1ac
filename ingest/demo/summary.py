"""The result of a demo."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ingest.demo.history import HistorySummary
from ingest.demo.lakehouse import LagPercentiles
from ingest.quality import Comparison


@dataclass(frozen=True)
class Summary:
    """The result. `changes`: op → committed statements. `accounts`: outcome → events. `story`: titles of the shown
    chapters."""

    seed: int
    comparisons: Sequence[Comparison]
    events: int
    snapshot_events: int
    accounts: Mapping[str, int]
    changes: Mapping[str, int]
    lag: LagPercentiles | None
    story: Sequence[str]
    seconds: float = 0.0
    history: HistorySummary | None = None

    @property
    def equal(self) -> bool:
        """True if every silver table equals its source table, and the checks of the history part hold."""
        tables = bool(self.comparisons) and all(c.equal for c in self.comparisons)
        return tables and (self.history is None or self.history.is_right)

    def plain(self) -> dict[str, Any]:
        """Returns the result as JSON values. Row counts are sums over all tables; `snapshot_events` counts accident
        claims."""
        return {
            "source_rows": sum(c.source_rows for c in self.comparisons),
            "silver_rows": sum(c.silver_rows for c in self.comparisons),
            "equal": self.equal,
            "events": self.events,
            "snapshot_events": self.snapshot_events,
            "lag_seconds": {"p50": self.lag.p50, "p95": self.lag.p95} if self.lag else None,
            "accounts": dict(self.accounts),
            "changes": dict(self.changes),
            "tables": {c.table: _plain(c) for c in self.comparisons},
            "story": list(self.story),
            "history": None if self.history is None else asdict(self.history),
            "seed": self.seed,
            "seconds": round(self.seconds, 1),
        }

    def sentences(self) -> list[str]:
        """Returns the result in sentences."""
        tables = [_sentence(c) for c in self.comparisons]
        return tables if self.history is None else [*tables, *self.history.sentences()]


def _plain(c: Comparison) -> dict[str, Any]:
    return {
        "source_rows": c.source_rows,
        "silver_rows": c.silver_rows,
        "equal": c.equal,
        "missing": c.missing,
        "extra": c.extra,
        "changed": c.changed,
        "repeated": c.repeated,
    }


def _sentence(c: Comparison) -> str:
    if c.equal:
        return f"{c.table}: silver equals the source, {c.source_rows} rows, every column of every row"
    parts = [f"{n} {w}" for w, n in _plain(c).items() if n and w in ("missing", "extra", "changed", "repeated")]
    columns = sorted({*c.columns, *c.mistyped})
    return f"{c.table}: silver DIFFERS from the source: {', '.join(parts)} (columns: {', '.join(columns)})"
