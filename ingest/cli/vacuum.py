"""`ingest vacuum`: files of old versions go."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from ingest.cli.run import PipelineName, explaining
from ingest.config import load
from ingest.run.old_files import WEEK, every_table, vacuum
from ingest.session import running


def vacuum_tables(
    pipeline: PipelineName,
    keep_hours: Annotated[
        float, typer.Option("--keep-hours", min=0.0, help="How old a version may be and still be read.")
    ] = WEEK,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole trace of a failure.")] = False,
) -> None:
    """Delete the files of a pipeline's tables that no version younger than this has. No query and no batch may take
    longer than that.

    Example: ingest vacuum claims --keep-hours 72
    """
    del debug
    loaded = load(pipeline)
    with running(f"ingest vacuum {loaded.name}", loaded.spark) as spark, explaining(loaded):
        tables = vacuum(spark, every_table(spark, loaded), keep_hours)
    if as_json:
        typer.echo(json.dumps({"tables": tables, "keep_hours": keep_hours}))
    else:
        typer.echo(f"{tables} tables: files of versions older than {keep_hours:g} hours are gone")
