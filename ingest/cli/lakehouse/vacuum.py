"""`ingest vacuum`: deletes files that only old versions of tables need."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from ingest.cli.pipeline.run import PipelineName
from ingest.cli.waiting import retry_while_away
from ingest.config import load
from ingest.failures.conversion import converting_errors
from ingest.spark.session import running
from ingest.upkeep.old_files import every_table, vacuum


def vacuum_tables(
    pipeline: PipelineName,
    keep_hours: Annotated[
        int | None,
        typer.Option(
            "--keep-hours",
            min=0,
            help="Hours for which old versions stay readable; overrides the pipeline's file.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole trace of a failure.")] = False,
) -> None:
    """Delete the files and log entries that only table versions older than --keep-hours need.

    A query or a batch that runs for longer than that may fail. A stream
    vacuums its tables by itself.

    Example: ingest vacuum claims --keep-hours 72
    """
    del debug
    loaded = load(pipeline)
    hours = loaded.old_versions.keep_hours if keep_hours is None else keep_hours
    with running(f"ingest vacuum {loaded.name}", loaded.session) as spark, converting_errors(loaded):
        tables = retry_while_away(spark, loaded, as_json, lambda _: vacuum(spark, every_table(spark, loaded), hours))
    if as_json:
        typer.echo(json.dumps({"tables": tables, "keep_hours": hours}))
    else:
        typer.echo(f"{tables} tables: deleted the files that only versions older than {hours} hours needed")
