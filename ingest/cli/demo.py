"""`ingest demo`: streams an insurer's claims from Postgres into silver and compares both."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from ingest.cli.printing import plain_console
from ingest.errors import ConfigError

if TYPE_CHECKING:
    from ingest.demo.summary import Summary

_DIFFERS = 1
_INTERRUPTED = 130


def demo(
    seconds: Annotated[float, typer.Option(min=0, help="For how many seconds the source changes, at least.")] = 20.0,
    seed: Annotated[int, typer.Option(help="Seed of the generated people and changes.")] = 1,
    keep: Annotated[bool, typer.Option("--keep", help="Run until Ctrl-C, then compare.")] = False,
    history: Annotated[
        bool,
        typer.Option("--history", help="Archive the changelog in S3, delete the lakehouse, and restore it."),
    ] = False,
    folder: Annotated[
        Path | None,
        typer.Option(help="A new folder for lakehouse and services, which is kept; default: a temporary one."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print nothing but a summary, as JSON.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole trace of a failure.")] = False,
) -> None:
    """Stream an insurer's claims from Postgres into silver, then compare row by row.

    Starts Postgres, Kafka and Kafka Connect by itself and stops them at the
    end. Exits with 1 where silver differs from its source.

    Example: ingest demo --seconds 20 --folder claims-demo
    """
    del debug  # `run_command` reads it from the command line.
    console = plain_console(stderr=as_json)
    with _folder(folder) as root:
        if keep:
            console.print("runs until Ctrl-C, then compares silver with its source")
            _print_locations(console, root)
        try:
            summary = _demonstrate(root, console, seed, None if keep else seconds, history)
        except KeyboardInterrupt:
            summary = None
    if summary is None:
        console.print("stopped before the comparison; no service is left running")
    else:
        _print_summary(console, summary, folder)
        if as_json:
            plain_console(soft_wrap=True).out(json.dumps(summary.plain()))
    if code := exit_code(summary):
        raise typer.Exit(code)


def exit_code(summary: Summary | None) -> int:
    """Returns 0 where silver equals its source, 1 where it differs, 130 where the demo was interrupted before the
    comparison."""
    if summary is None:
        return _INTERRUPTED
    return 0 if summary.equal else _DIFFERS


def _print_summary(console: Console, summary: Summary, folder: Path | None) -> None:
    for sentence in summary.sentences():
        console.print(sentence, style="green" if summary.equal else "red", soft_wrap=True)
    console.print(f"total: {summary.seconds:.0f} s")
    if folder is None:
        console.print("to look around afterwards, keep the tables: ingest demo --folder claims-demo")
    else:
        _print_locations(console, folder.expanduser().absolute())


def _demonstrate(root: Path, console: Console, seed: int, seconds: float | None, history: bool) -> Summary | None:
    from ingest.cli.pipeline.run import stop_on_signal
    from ingest.demo.demonstration import Options, demonstrate
    from ingest.demo.display import Display

    with Display(console) as display:
        return demonstrate(Options(root, seed, seconds, history), display, stop_on_signal)


@contextmanager
def _folder(folder: Path | None) -> Iterator[Path]:
    """Yields the chosen folder, which has to be new or empty, or else a temporary one, which is removed at the end."""
    from ingest.stack import EXTERNAL_VARIABLES

    _refuse_external(EXTERNAL_VARIABLES.values())
    if folder is not None:
        root = folder.expanduser().absolute()
        if root.exists() and (not root.is_dir() or any(root.iterdir())):
            raise ConfigError(f"{root} is not empty", "give a new folder; the demo begins from nothing")
        root.mkdir(parents=True, exist_ok=True)
        yield root
        return
    root = Path(tempfile.mkdtemp(prefix="ingest-demo-"))
    root.chmod(0o711)  # Postgres may run as another user, who must get through to its own folder
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _refuse_external(variables: Iterable[str]) -> None:
    """Raises ConfigError if a variable names an external service: the demo creates its own tables and connector."""
    named = [name for name in variables if os.environ.get(name)]
    if named:
        raise ConfigError(
            f"{', '.join(named)} names an external service, but the demo starts its own", "unset it for the demo"
        )


def _print_locations(console: Console, root: Path) -> None:
    lakehouse = root / "lakehouse"
    query = "SELECT status, count(*) FROM claims.accident_claims GROUP BY status"
    for line in (
        "look around:",
        f'  ingest sql --lakehouse {lakehouse} "{query}"',
        f"  tables: {lakehouse}/silver, events as they came: {lakehouse}/bronze",
        f"  logs of the services: {root}/services/*/log",
    ):
        console.print(line, soft_wrap=True)
