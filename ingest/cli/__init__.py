"""The command line: `ingest`. The first message is printed before the libraries are imported, which takes seconds."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ingest.cli.failure import run_command
from ingest.cli.start import announce

if TYPE_CHECKING:
    from ingest.cli.commands import app as app


def main() -> None:
    """Runs the command `ingest`."""
    announce(sys.argv[1:])

    def command() -> None:
        from ingest.cli.commands import app

        app()

    run_command(command)


def __getattr__(name: str) -> Any:
    """Imports the commands on first access to `app`."""
    if name == "app":
        from ingest.cli.commands import app

        return app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
