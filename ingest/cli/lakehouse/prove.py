"""`ingest prove`: recomputes silver from its events and compares."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from ingest.backfill.proving import Proof
from ingest.backfill.proving import prove as proved
from ingest.cli.guarded import guarded
from ingest.cli.printing import plain_console
from ingest.cli.progress_bars import event_bar
from ingest.config import load
from ingest.errors import EXIT_DIFFERS
from ingest.jvm.folders import deleted_afterwards
from ingest.lakehouse.accounts import Accounts
from ingest.lakehouse.catalog import Catalog
from ingest.loop.set_aside import require_all_merged
from ingest.spark.session import running


def prove(
    pipeline: Annotated[str, typer.Argument(help="A pipeline's name or file.")],
    table: Annotated[list[str] | None, typer.Option("--table", help="Only this one. May be repeated.")] = None,
    keys: Annotated[
        bool, typer.Option("--keys/--no-keys", help="Print the keys that differ, which may be personal.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole trace of a failure.")] = False,
) -> None:
    """Recompute the tables from all events that the pipeline has read, and compare digests with the live tables. A
    stream may run meanwhile.

    Exits with 1 if a table differs, and shows the first keys that differ and
    their events. A table that is set aside is compared as of its last merged
    batch, and the exit code is 2.

    Example: ingest prove claims --table claims.members
    """
    del debug
    loaded = load(pipeline)
    scratch = loaded.layout.scratch(f"proof-{uuid.uuid4().hex[:12]}")
    with (
        running(f"ingest prove {loaded.name}", loaded.session) as spark,
        guarded(spark, loaded, as_json),
        deleted_afterwards(spark, scratch.root),
        event_bar(as_json) as advance,
    ):
        Catalog(spark, loaded.layout.tables).require(loaded.name, table or ())
        found = proved(spark, loaded, scratch, tuple(table or ()), advance)
        set_aside = Accounts(spark, loaded.layout.accounts, loaded.name).set_aside()
    _show(found, keys, as_json)
    if not all(p.equal for p in found):
        raise typer.Exit(EXIT_DIFFERS)
    require_all_merged(loaded.name, {t: one for t, one in set_aside.items() if not table or t in table})


def _verdict_text(equal: bool | None) -> Text:
    return Text() if equal is None else Text("equal") if equal else Text("differs", style="bold red")


def _show(found: Sequence[Proof], keys: bool, as_json: bool) -> None:
    if as_json:
        proofs = [asdict(p) | {"equal": p.equal, "counted_twice": p.counted_twice} for p in found]
        for one in proofs:
            for difference in one["differences"]:
                if not keys:
                    del difference["key"]
        typer.echo(json.dumps({"tables": proofs}, ensure_ascii=False))
        return
    console = plain_console()
    table = Table("table", "rows", "recomputed", "up to batch", "", "row history")
    for p in found:
        live, folded = (f"{d.rows:,}" if d else "none" for d in (p.live, p.folded))
        table.add_row(p.table, live, folded, str(p.upto_batch), _verdict_text(p.rows_equal), _verdict_text(p.history))
    console.print(table)
    for p in found:
        if p.counted_twice:
            console.print(
                f"{p.table}: more rows than the {p.deliveries:,} records that were delivered: some count twice → "
                "rebuild it: ingest backfill PIPELINE --rebuild"
            )
        for d in p.differences:
            named = ", ".join(f"{k} = {v}" for k, v in d.key.items()) if keys else "a key"
            what = "is missing" if d.live is None else "has no event" if d.folded is None else "differs"
            console.print(f"{p.table}: {named} {what}; events: {', '.join(d.events) or 'none'}")
