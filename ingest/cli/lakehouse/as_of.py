"""`ingest as-of`: writes silver as it was at a point of the log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from pyspark.sql import SparkSession
from rich.table import Table

from ingest.backfill.archive_reading import archive_as_bronze
from ingest.backfill.digests import table_digests
from ingest.backfill.recomputing import committed_by, readers_with_events, recompute_tables
from ingest.backfill.source_readers import SourceReader
from ingest.changelog.dialects.registry import position_forms
from ingest.changelog.point import Point
from ingest.cli.guarded import guarded
from ingest.cli.point import point
from ingest.cli.printing import plain_console
from ingest.cli.progress_bars import event_bar
from ingest.config import Pipeline, load
from ingest.errors import ConfigError
from ingest.jvm.folders import is_empty
from ingest.lakehouse.catalog import Catalog
from ingest.names import Lakehouse
from ingest.spark.session import running


class AsOfOrigin(StrEnum):
    """Where events are read from."""

    BRONZE = "bronze"
    ARCHIVE = "archive"


def as_of(
    pipeline: Annotated[str, typer.Argument(help="A pipeline's name or file.")],
    out: Annotated[str, typer.Option("--out", help="An empty folder or URI for the tables.")],
    time: Annotated[str | None, typer.Option("--time", help="The time of the source's commits, in ISO 8601.")] = None,
    position: Annotated[
        str | None, typer.Option("--position", help=f"The source's position, {position_forms()}.")
    ] = None,
    table: Annotated[list[str] | None, typer.Option("--table", help="Only this one. May be repeated.")] = None,
    source: Annotated[AsOfOrigin, typer.Option("--source", help="Where the events are read.")] = AsOfOrigin.BRONZE,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole trace of a failure.")] = False,
) -> None:
    """Write the tables as they were at a point of the log to a new folder. Query it with `ingest sql --lakehouse DIR`.

    The tables hold everything that the source had committed by then, and
    nothing of transactions that were open. Use --source archive where bronze
    begins too late or is lost.

    Example: ingest as-of claims --time 2026-01-31T12:00:00Z --out /tmp/january
    """
    del debug
    loaded = load(pipeline)
    until = _point(time, position, len(loaded.source.epochs))
    root = out if "://" in out else str(Path(out).absolute())
    with running(f"ingest as-of {loaded.name}", loaded.session) as spark, guarded(spark, loaded, as_json):
        if not is_empty(spark, root):
            raise ConfigError(f"{root} is not empty", "choose another --out")
        into = Lakehouse(root)
        with event_bar(as_json) as advance, _readers(spark, loaded, source, into) as readers:
            event_filter = partial(committed_by, until)
            entries = recompute_tables(spark, loaded, into, tuple(table or ()), event_filter, advance, readers=readers)
        Catalog(spark, into.tables).require(loaded.name, table or ())
        digests = table_digests(spark, into, loaded.name)
    found = [{"table": e.table_schema.table, **asdict(digests[e.table_schema.table]), "path": e.path} for e in entries]
    if as_json:
        typer.echo(json.dumps({"until": until.text, "tables": found}, ensure_ascii=False))
        return
    shown = Table("table", "rows", "path", title=f"{loaded.name} as of {until.text}")
    for one in found:
        shown.add_row(str(one["table"]), f"{one['rows']:,}", str(one["path"]))
    plain_console().print(shown)


@contextmanager
def _readers(
    spark: SparkSession, pipeline: Pipeline, source: AsOfOrigin, into: Lakehouse
) -> Iterator[list[tuple[SourceReader, int]]]:
    if source is AsOfOrigin.ARCHIVE:
        with archive_as_bronze(spark, pipeline, into) as reader:
            yield [reader]
        return
    found = list(readers_with_events(spark, pipeline))
    if not found:
        raise ConfigError(
            f"no event of pipeline {pipeline.name} was ever merged into {pipeline.lakehouse}",
            "check the lakehouse in its file; to read archived events, add --source archive",
        )
    yield found


def _point(time: str | None, position: str | None, epoch: int) -> Point:
    given = [(option, text) for option, text in (("--time", time), ("--position", position)) if text is not None]
    if len(given) != 1:
        raise ConfigError("as-of needs exactly one of --time and --position", "give one of them")
    found = point(*given[0], epoch)
    if (found.time is None) != (time is None):
        raise ConfigError(f"{given[0][1]} is no {given[0][0].strip('-')}", "give it under the other option")
    return found
