"""`ingest gc`: removes tombstones that no late event needs any more."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer
from rich.table import Table

from ingest.cli.guarded import guarded
from ingest.cli.printing import plain_console
from ingest.cli.waiting import retry_while_away
from ingest.config import load
from ingest.pipeline.retrying import OnProgress
from ingest.spark.session import running


def gc(
    pipeline: Annotated[str, typer.Argument(help="A pipeline's name or file.")],
    keep_days: Annotated[
        float | None,
        typer.Option(min=0, help="Remove tombstones older than this, even if an input still holds older events."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole trace of a failure.")] = False,
) -> None:
    """Remove tombstones of deleted keys.

    Without --keep-days (or tombstones.keep_days in the pipeline's file) only
    those go that are older than everything that the topics and the archive
    still hold. An even older event that arrives later is quarantined.

    Example: ingest gc claims --keep-days 90 --dry-run
    """
    del debug
    from ingest.pipeline.composition import bronze_of
    from ingest.upkeep import tombstone_gc

    loaded = load(pipeline)
    days = loaded.tombstones.keep_days if keep_days is None else keep_days
    with running("ingest gc", loaded.session) as spark, guarded(spark, loaded, as_json):

        def collect(_: OnProgress) -> Sequence[tombstone_gc.GcResult]:
            bronze = bronze_of(spark, loaded)
            if days is None:
                horizons = tombstone_gc.input_horizons(spark, bronze, tombstone_gc.earliest_offsets_of(spark, loaded))
            else:
                horizons = tombstone_gc.age_horizons(bronze, datetime.now(UTC) - timedelta(days=days))
            return tombstone_gc.collect_garbage(spark, loaded.name, loaded.layout, bronze, horizons, dry_run)

        found = retry_while_away(spark, loaded, as_json, collect)
    console = plain_console()
    if as_json:
        console.out(json.dumps({"dry_run": dry_run, "tables": [asdict(table) for table in found]}, ensure_ascii=False))
        return
    table = Table("table", "tombstones", "would be removed" if dry_run else "removed")
    for one in found:
        table.add_row(one.table, f"{one.tombstones:,}", f"{one.forgotten:,}")
    console.print(table)
