"""How a failure reaches its reader: two lines and an exit code, or with `--debug` the whole trace."""

from __future__ import annotations

import sys
from collections.abc import Callable

from rich.console import Console
from rich.markup import escape

from ingest.errors import IngestError


def guarded(command: Callable[[], object]) -> None:
    """Runs a command; exits with the code of the error that its reader can act upon."""
    try:
        command()
    except IngestError as error:
        if "--debug" in sys.argv:
            raise
        console = Console(stderr=True, highlight=False, soft_wrap=True)
        console.print(f"[bold red]error[/]: {escape(error.problem)}")
        console.print(f"[bold]what to do[/]: {escape(error.remedy)}")
        sys.exit(error.exit_code)
