"""`ingest jars`: where the jars lie that a submitted job needs."""

from __future__ import annotations

from typing import Annotated

import typer

from ingest.jars import jars as resolved


def jars(
    configuration: Annotated[str, typer.Argument(help="spark, kafka, connect or debezium.")] = "spark",
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole trace of a failure.")] = False,
) -> None:
    """Print the jars of a configuration, separated by commas; fetch them first where they are missing.

    Example: spark-submit --jars "$(ingest jars)" jobs/run.py claims --available-now
    """
    del debug
    typer.echo(",".join(str(path) for path in resolved(configuration)))
