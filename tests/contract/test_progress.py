"""What a run shows of itself, on a terminal and elsewhere."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from io import StringIO

from rich.console import Console

from ingest.changelog.accounting import Account
from ingest.cli.progress import figures, shown
from ingest.run.pipeline import Progress

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
ACCOUNTS = [Account("shop.orders", 90, 80, 10), Account("", 10, suppressed=10)]


def progress(seconds: float = 2.0) -> Progress:
    return Progress(100, ACCOUNTS, seconds, 4321, NOW - timedelta(seconds=1.5))


def test_figures_tell_rate_and_lag() -> None:
    told = figures(progress(), NOW)
    assert (told["events_per_second"], told["behind"], told["lag_seconds"]) == (50.0, 4321, 1.5)
    assert told["tables"]["shop.orders"]["applied"] == 80
    assert told["tables"]["(no table)"]["suppressed"] == 10


def test_what_is_not_known_is_not_told() -> None:
    assert figures(Progress(7, []), NOW) == {"captured": 7, "seconds": 0.0, "tables": {}}


def test_a_clock_that_is_ahead_makes_no_negative_lag() -> None:
    assert figures(progress(), NOW - timedelta(minutes=1))["lag_seconds"] == 0.0


def test_a_batch_is_a_json_object_or_some_lines() -> None:
    for as_json in (True, False):
        text = StringIO()
        with shown("shop", as_json, Console(file=text, width=40)) as show:
            show(progress())
            show(progress())
        lines = text.getvalue().splitlines()
        if as_json:
            assert [json.loads(line)["captured"] for line in lines] == [100, 100], "a line is never folded"
        else:
            assert len(lines) == 6
            assert "4,321 offsets behind" in lines[0]
            assert lines[1] == "  shop.orders: read 90, applied 80, superseded 10"


def test_a_terminal_shows_what_a_run_has_done_in_one_table() -> None:
    text = StringIO()
    with shown("shop", False, Console(file=text, force_terminal=True, width=120)) as show:
        show(progress())
        show(progress())
    last = text.getvalue().split("shop: ")[-1]
    assert "captured 100, 2.0 s, 50 events/s, 4,321 offsets behind, lag" in last
    row = next(line for line in last.splitlines() if "shop.orders" in line)
    assert [c.strip() for c in row.split("│")[1:-1]] == ["shop.orders", "45", "180", "160", "20", "0", "0"]
