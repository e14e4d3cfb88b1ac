"""`ingest status`: where a pipeline stands."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from ingest.cli.printing import verbatim
from ingest.config import load
from ingest.session import running

if TYPE_CHECKING:
    from ingest.run.status import Status


def status(
    pipeline: Annotated[str, typer.Argument(help="A pipeline's name or file.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole trace of a failure.")] = False,
) -> None:
    """Show how far a pipeline has come, and for each table its rows, those that wait, tombstones and quarantine.

    Example: ingest status claims
    """
    del debug
    from ingest.run import status as standing

    loaded = load(pipeline)
    with running("ingest status", loaded.session) as spark:
        found = standing.status(spark, loaded.name, loaded.layout)
    console = verbatim()
    if as_json:
        console.out(json.dumps(asdict(found), ensure_ascii=False))
    else:
        _show(console, found)


def _show(console: Console, found: Status) -> None:
    table = Table("table", "primary key", "rows", "pending", "tombstones", "quarantined")
    for t in found.tables:
        counts = (f"{n:,}" for n in (t.rows, t.pending, t.tombstones, t.quarantined))
        table.add_row(t.table, ", ".join(t.primary_key) or "(none: a bag)", *counts)
    console.print(table)
    behind = found.captured - found.merged
    console.print(
        f"bronze holds {found.records:,} records in {found.captured:,} batches"
        + (f", {behind:,} of them not merged yet" if behind else ", all merged")
    )
    for code, count in found.quarantined.items():
        console.print(f"quarantine: {count:,} × {code}")
