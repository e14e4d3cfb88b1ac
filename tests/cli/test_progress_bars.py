"""Progress bars appear on a terminal only."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from ingest.cli.progress_bars import progress_bar


def test_terminal_shows_a_progress_bar() -> None:
    text = StringIO()
    console = Console(file=text, force_terminal=True, no_color=True, width=80)
    with progress_bar("records", False, lambda: 1000, console) as advance:
        advance(400)
        advance(100)
    assert "500/1000" in text.getvalue()
    assert "records" in text.getvalue()


@pytest.mark.parametrize(("as_json", "terminal"), [(True, True), (False, False)])
def test_no_progress_bar_without_a_terminal(as_json: bool, terminal: bool) -> None:
    text = StringIO()

    def counted() -> int:
        raise AssertionError("nobody looks")

    with progress_bar("records", as_json, counted, Console(file=text, force_terminal=terminal)) as advance:
        advance(400)
    assert text.getvalue() == ""
