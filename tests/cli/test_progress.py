"""The progress of a run, on a terminal and elsewhere."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from io import StringIO

from rich.console import Console

from ingest.changelog.accounting import Account
from ingest.cli.progress import figures, progress_display
from ingest.pipeline.composition import Progress

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
ACCOUNTS = [Account("shop.orders", 90, 80, 10), Account("", 10, suppressed=10)]


def progress(seconds: float = 2.0) -> Progress:
    return Progress(100, ACCOUNTS, seconds, 4321, NOW - timedelta(seconds=1.5))


def test_progress_shows_rate_and_lag() -> None:
    shown = figures(progress(), NOW)
    assert (shown["events_per_second"], shown["behind"], shown["lag_seconds"]) == (50.0, 4321, 1.5)
    assert shown["tables"]["shop.orders"]["applied"] == 80
    assert shown["without_table"]["suppressed"] == 10


def test_unknown_figures_are_omitted() -> None:
    assert figures(Progress(7, []), NOW) == {"captured": 7, "seconds": 0.0, "tables": {}}


def test_lag_is_never_negative() -> None:
    assert figures(progress(), NOW - timedelta(minutes=1))["lag_seconds"] == 0.0


def test_batch_is_printed_as_json_or_lines() -> None:
    for as_json in (True, False):
        text = StringIO()
        with progress_display("shop", as_json, Console(file=text, width=40)) as show:
            show(progress())
            show(progress())
        lines = text.getvalue().splitlines()
        if as_json:
            assert [json.loads(line)["captured"] for line in lines] == [100, 100], "a line is never folded"
        else:
            assert len(lines) == 6
            assert lines[0].startswith(
                "captured 100 records, merged 100 events in 2.0 s (50 a second), 4,321 records behind, newest change "
            )
            assert lines[1:3] == [
                "  shop.orders: read 90, applied 80, superseded 10",
                "  records of no table: read 10, suppressed 10",
            ]


def test_no_rate_without_merged_events() -> None:
    text = StringIO()
    with progress_display("shop", False, Console(file=text)) as show:
        show(Progress(1, [], 0.25, 0))
        show(Progress(0, [Account("shop.orders")], 0.25, 0))
    assert text.getvalue().splitlines() == [
        "captured 1 record in 0.2 s (4 a second), none merged yet, 0 records behind",
        "merged no event in 0.2 s, 0 records behind",
        "  shop.orders: nothing",
    ]


def test_terminal_shows_one_table_per_run() -> None:
    text = StringIO()
    with progress_display("shop", False, Console(file=text, force_terminal=True, width=140)) as show:
        show(progress())
        show(Progress(3, [Account("shop.items", 3, 3)], 2.0))
    last = text.getvalue().split("shop: ")[-1]
    assert "captured 3 records, merged 3 events in 2.0 s (2 a second)" in last
    assert "superseded: late, duplicate, or followed by a newer event" in " ".join(last.split())
    rows = [[c.strip() for c in line.split("│")[1:-1]] for line in last.splitlines() if line.startswith("│")]
    assert rows == [
        ["shop.items", "3", "3", "3", "0", "0", "0"],
        ["shop.orders", "none", "90", "80", "10", "0", "0"],
        ["records of no table", "none", "10", "0", "0", "0", "10"],
    ]
