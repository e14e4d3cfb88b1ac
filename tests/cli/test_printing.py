"""Commands print values verbatim."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.table import Table
from typer.testing import CliRunner

from ingest import cli
from ingest.cli.failure import run_command
from ingest.cli.printing import plain_console
from ingest.errors import ConfigError

NAMES = r"shop\.[a-z]+ [red]:key:"


def test_names_and_values_are_printed_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("topics")
    table.add_row(NAMES)
    plain_console().print(table)
    assert NAMES in capsys.readouterr().out


def test_errors_print_names_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    def command() -> None:
        raise ConfigError(f"no topic matches {NAMES}", f"correct {NAMES}")

    with pytest.raises(SystemExit, match="2"):
        run_command(command)
    assert capsys.readouterr().err == f"error: no topic matches {NAMES}\nwhat to do: correct {NAMES}\n"


def test_all_commands_use_the_plain_console() -> None:
    modules = Path(cli.__file__).parent.rglob("*.py")
    assert [m.name for m in modules if "Console(" in m.read_text(encoding="utf-8")] == ["printing.py"]


def test_folder_is_no_changelog_file(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli.app, ["replay", str(tmp_path), "--out", str(tmp_path / "out")])
    assert str(result.exception) == f"{tmp_path} is a folder → add --each, or give the files in it"


def test_cells_are_never_truncated(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """In a file or a pipe each cell is on one line; a narrow terminal folds it."""
    cells = ("2026-01-01T02:00:00.030000+00:00", "changed" * 10, "0:16B3748:0:0")
    for columns in (None, "60"):
        table = Table("committed at", "what changed", "position")
        table.add_row(*cells)
        monkeypatch.delenv("COLUMNS", raising=False)
        if columns is not None:
            monkeypatch.setenv("COLUMNS", columns)
        plain_console().print(table)
        shown = capsys.readouterr().out
        rows = [line.split("│")[1:-1] for line in shown.splitlines() if line.startswith("│")]
        assert tuple("".join(part.strip() for part in column) for column in zip(*rows, strict=True)) == cells
        assert (len(rows) == 1) == (columns is None)
