"""Prints a failure as two lines and sets the exit code; with `--debug` the whole trace is shown."""

from __future__ import annotations

import sys
from collections.abc import Callable

from rich.text import Text

from ingest.cli.printing import plain_console
from ingest.errors import IngestError


def run_command(command: Callable[[], object]) -> None:
    """Runs a command. Prints an IngestError and exits with its exit code."""
    try:
        command()
    except IngestError as error:
        if "--debug" in sys.argv:
            raise
        console = plain_console(stderr=True, soft_wrap=True)
        console.print(Text.assemble(("error", "bold red"), f": {error.problem}"))
        console.print(Text.assemble(("what to do", "bold"), f": {error.remedy}"))
        sys.exit(error.exit_code)
