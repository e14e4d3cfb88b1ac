"""`ingest digest`: prints a digest of a silver table's rows, equal for equal content."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from ingest.backfill.digests import entry_digest
from ingest.cli.guarded import guarded
from ingest.cli.printing import plain_console
from ingest.config import load
from ingest.lakehouse.catalog import Catalog
from ingest.lakehouse.silver import Silver
from ingest.spark.session import running


def digest(
    table: Annotated[str, typer.Argument(help="A table, by its name in the source.")],
    pipeline: Annotated[str, typer.Option("--pipeline", "-p", help="The table's pipeline.")],
    as_of: Annotated[
        str | None,
        typer.Option("--as-of", help="A version of the Delta table, or a time in ISO 8601."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole trace of a failure.")] = False,
) -> None:
    """Print a digest of a silver table's live rows. It doesn't depend on the order of rows, files or batches.

    Example: ingest digest claims.members --pipeline claims
    """
    del debug
    loaded = load(pipeline)
    with running("ingest digest", loaded.session) as spark, guarded(spark, loaded, as_json):
        entry = Catalog(spark, loaded.layout.tables).entry(loaded.name, table)
        silver = Silver(spark, loaded.layout.silver(loaded.name, table))
        found = entry_digest(entry, silver.rows(as_of))
    console = plain_console()
    console.out(json.dumps({"table": table, **asdict(found)}) if as_json else f"{found.digest}  {table}")
