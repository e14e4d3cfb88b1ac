"""`ingest accounts`: shows the counts of events by outcome and checks their sums."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from ingest.changelog.accounting import COUNTS, WITHOUT_TABLE
from ingest.cli.guarded import guarded
from ingest.cli.printing import plain_console
from ingest.config import load
from ingest.errors import EXIT_DIFFERS
from ingest.lakehouse.accounts import Accounts
from ingest.pipeline.composition import bronze_of
from ingest.quality.accounting import Audit, audit
from ingest.spark.session import running


def accounts(
    pipeline: Annotated[str, typer.Argument(help="A pipeline's name or file.")],
    from_batch: Annotated[int, typer.Option(min=1, help="First capture batch to check.")] = 1,
    to_batch: Annotated[int | None, typer.Option(min=1, help="Last capture batch; default: the newest.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole trace of a failure.")] = False,
) -> None:
    """Show and check the accounts: read = applied + superseded + quarantined + suppressed, without gaps between
    batches.

    Exits with 1 if an event is missing or counted twice.

    Example: ingest accounts claims
    """
    del debug
    loaded = load(pipeline)
    with running("ingest accounts", loaded.session) as spark, guarded(spark, loaded, as_json):
        bronze = bronze_of(spark, loaded).rows()
        account_rows = Accounts(spark, loaded.layout.accounts, loaded.name).rows()
        found = audit(bronze, account_rows, from_batch, to_batch)
    console = plain_console()
    if as_json:
        console.out(json.dumps(asdict(found), ensure_ascii=False))
    else:
        _show(console, found)
    if found.problems:
        raise typer.Exit(EXIT_DIFFERS)


def _show(console: Console, found: Audit) -> None:
    table = Table("table", *COUNTS)
    for name, counts in found.tables.items():
        table.add_row(name or WITHOUT_TABLE, *(f"{counts[c]:,}" for c in COUNTS))
    console.print(table)
    offsets = Table("topic", "partition", "offsets", "records")
    for p in found.partitions:
        offsets.add_row(p.topic, str(p.partition), f"{p.first}-{p.last}", f"{p.records:,}")
    console.print(offsets)
    console.print(f"{found.merged:,} records are accounted for, {found.waiting:,} wait in bronze")
    for problem in found.problems:
        console.print(problem, style="bold red")
    if not found.problems:
        console.print("every event is accounted for")
