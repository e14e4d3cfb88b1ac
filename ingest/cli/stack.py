"""`ingest stack`: runs the embedded services in the background or the foreground."""

from __future__ import annotations

import json
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ingest.stack import CHANGELOG_PARTS, EXTERNAL_VARIABLES, PARTS, ServiceStatus, Stack

app = typer.Typer(
    help="Postgres, Kafka, Kafka Connect with Debezium, and S3 on this machine, without Docker.",
    no_args_is_help=True,
)

Folder = Annotated[Path, typer.Option(help="Where the services keep data, logs and addresses.")]
_WATCH_SECONDS = 1.0


@app.command(
    epilog=f"Example: ingest stack up --folder .stack. An address of your own replaces a part: "
    f"{', '.join(EXTERNAL_VARIABLES.values())}."
)
def up(
    folder: Folder = Path(".stack"),
    part: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Which, of {', '.join(PARTS)}; without it {', '.join(CHANGELOG_PARTS)}. May be repeated.",
        ),
    ] = None,
    foreground: Annotated[bool, typer.Option(help="Stay until Ctrl-C, then stop the services.")] = False,
) -> None:
    """Start the services and show their addresses, users and logs. Services that run already are left running."""
    stack = Stack(folder, tuple(part or CHANGELOG_PARTS), keep=True, tethered=foreground)
    if not foreground:
        stack.start()
        _show(stack.status())
        if any(service.service == "connect" for service in stack.status()):
            recipe = "ingest connector recipe postgres --name shop --json"
            typer.echo(f"read a database with: {recipe} | curl --json @- {stack.connect.url}/connectors")
        typer.echo(f"stop them with: ingest stack down --folder {folder}")
        return
    with stack:
        _show(stack.status())
        typer.echo("Ctrl-C stops them")
        pause = threading.Event()
        try:
            while not pause.wait(_WATCH_SECONDS):
                stack.require_running()
        except KeyboardInterrupt:
            typer.echo("stopping")


@app.command(epilog="Example: ingest stack status --json | jq '.[].address'")
def status(
    folder: Folder = Path(".stack"),
    as_json: Annotated[bool, typer.Option("--json", help="For programs: a list of objects.")] = False,
) -> None:
    """Show for each service whether it runs and answers. Exits with 1 if one of them does not."""
    services = Stack.at(folder).status()
    if as_json:
        typer.echo(json.dumps([asdict(service) for service in services], indent=1))
    else:
        _show(services)
    if not all(service.healthy for service in services):
        raise typer.Exit(1)


@app.command(epilog="Example: ingest stack down --purge")
def down(
    folder: Folder = Path(".stack"),
    purge: Annotated[bool, typer.Option(help="Remove the data and logs as well.")] = False,
) -> None:
    """Stop every service that was started here. Their data stays for the next `up`, unless --purge is given."""
    stack = Stack.at(folder)
    if purge:
        stack.purge()
        typer.echo(f"stopped, and removed their data from {folder}")
    else:
        stack.stop()
        typer.echo(f"stopped; their data stays in {folder}")


def _show(services: list[ServiceStatus]) -> None:
    """Prints each service with what a client needs, a line each, so that the terminal's edge cuts nothing off."""
    for service in services:
        answers = "answers" if service.healthy else "does not answer"
        typer.echo(f"{service.service}: {service.state}" + ("" if service.state == "stopped" else f", {answers}"))
        lines = {"address": service.address, **service.access}
        if service.pid is not None:
            lines["pid"] = str(service.pid)
        if service.log is not None:
            lines["log"] = service.log
        for name, value in lines.items():
            if value:
                typer.echo(f"  {name:<14} {value}")
