"""`ingest jars`: prints the jars that a submitted job needs, and writes the class archive for faster starts."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from ingest.jvm.class_archive import make
from ingest.jvm.jars import jars as resolved
from ingest.jvm.library import session_jars

_VALUES = [{"op": "c", "after": {"id": 1}}, {"op": "u", "after": {"id": 1}}, {"op": "d", "before": {"id": 1}}, None]
_MAIN = "from ingest.cli import main; main()"


def jars(
    configuration: Annotated[str, typer.Argument(help="spark, kafka, connect, debezium or compiler.")] = "spark",
    archive: Annotated[
        bool, typer.Option("--archive", help="Write Spark's classes to an archive once: later sessions start sooner.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole trace of a failure.")] = False,
) -> None:
    """Print the jars of a configuration, separated by commas; fetch them first where they are missing.

    Example: spark-submit --jars "$(ingest jars)" jobs/run.py claims --available-now
    """
    del debug
    if archive:
        _archive()
    listed = session_jars() if configuration == "spark" else resolved(configuration)
    typer.echo(",".join(str(path) for path in listed))


def _archive() -> None:
    with tempfile.TemporaryDirectory(prefix="ingest-archive-") as folder:
        events, out = Path(folder) / "events.jsonl", Path(folder) / "out"
        record = {"topic": "t", "partition": 0, "key": {"id": 1}}
        lines = (json.dumps(record | {"offset": at, "value": value}) + "\n" for at, value in enumerate(_VALUES))
        events.write_text("".join(lines), encoding="utf-8")
        make([sys.executable, "-c", _MAIN, "replay", str(events), "--out", str(out)])
