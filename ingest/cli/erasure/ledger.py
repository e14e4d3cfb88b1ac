"""`ingest ledger`: verifies the ledger of erasures, and restores it from its copy."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from ingest.cli.start import count_text
from ingest.cli.waiting import retry_while_away
from ingest.config import Pipeline, load
from ingest.errors import ConfigError
from ingest.failures.conversion import converting_errors
from ingest.pipeline.ledger_guard import LedgerGuard, LedgerReport
from ingest.spark.session import running

EXIT_DAMAGED = 1

app = typer.Typer(help="The ledger of erasures, which suppresses the events of erased subjects.", no_args_is_help=True)
Named = Annotated[str, typer.Argument(help="A pipeline's name or file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print it as JSON.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the whole trace of a failure.")]


@app.command()
def verify(pipeline: Named, as_json: AsJson = False, debug: Debug = False) -> None:
    """Check that no entry of the ledger is missing or altered, and that its copy and its anchor, which are outside of
    the lakehouse, agree with it. Reads all of them.

    Exits with 1 if an entry is missing or altered.

    Example: ingest ledger verify claims
    """
    del debug
    loaded = _with_subjects(pipeline)
    with running(f"ingest ledger {loaded.name}", loaded.session) as spark, converting_errors(loaded):
        found = retry_while_away(spark, loaded, as_json, lambda _: LedgerGuard(spark, loaded).verify())
    _show(found, as_json)
    if found.faults:
        raise typer.Exit(EXIT_DAMAGED)


@app.command()
def restore(
    pipeline: Named,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Go on without entries that neither the ledger nor its copy has.")
    ] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Bring the ledger back from its copy: after the lakehouse was lost, rolled back or restored, or entries were
    altered. Does nothing if the ledger is whole.

    Requests that only the ledger holds are kept. Stop other commands of the
    pipeline meanwhile.

    Example: ingest ledger restore claims
    """
    del debug
    loaded = _with_subjects(pipeline)
    with running(f"ingest ledger {loaded.name}", loaded.session) as spark, converting_errors(loaded):
        found = retry_while_away(spark, loaded, as_json, lambda _: LedgerGuard(spark, loaded).restore(accept_loss))
    _show(found, as_json)


def _with_subjects(pipeline: str) -> Pipeline:
    """Returns the pipeline. Raises ConfigError if its file names no key file: then it has no ledger."""
    loaded = load(pipeline)
    if loaded.privacy is None:
        raise ConfigError(
            f"pipeline {loaded.name} has no ledger: its file has no privacy", "name a key_file: privacy: {key_file: …}"
        )
    return loaded


def _show(found: LedgerReport, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(asdict(found), ensure_ascii=False))
        return
    typer.echo(f"the ledger holds {count_text(found.requests, 'request')}; its last entry is {found.entries:,}")
    typer.echo(f"copy: up to entry {found.copied:,}, {found.copy}")
    typer.echo(f"anchor: entry {found.anchored:,}, {found.anchor}")
    for fault in found.faults:
        typer.echo(f"FAULT: entry {fault.number:,} {fault.problem}")
