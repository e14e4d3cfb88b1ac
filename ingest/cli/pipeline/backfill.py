"""`ingest backfill`: merges a part of history again while the stream goes on."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from enum import StrEnum
from typing import Annotated

import typer
from pyspark.sql import SparkSession
from rich.table import Table

from ingest.backfill.backfill import Backfill, BackfillRequest, planned
from ingest.backfill.rebuilding import Rebuild
from ingest.changelog.accounting import COUNTS, WITHOUT_TABLE, Account, by_table
from ingest.changelog.dialects.registry import position_examples, position_forms
from ingest.cli.guarded import guarded
from ingest.cli.pipeline.run import stop_on_signal
from ingest.cli.point import point
from ingest.cli.printing import plain_console
from ingest.cli.progress_bars import event_bar
from ingest.cli.waiting import retry_while_away, wait_reporter
from ingest.config import Pipeline, load
from ingest.errors import EXIT_TRANSIENT, ConfigError
from ingest.lakehouse.catalog import Catalog
from ingest.loop.set_aside import require_all_merged
from ingest.pipeline.retrying import OnProgress, Retries
from ingest.sources.dump import Dump
from ingest.spark.session import running


class BackfillOrigin(StrEnum):
    """Where history is read from."""

    BRONZE = "bronze"
    ARCHIVE = "archive"
    KAFKA = "kafka"


def backfill(
    pipeline: Annotated[str, typer.Argument(help="A pipeline's name or file.")],
    begin: Annotated[
        str | None,
        typer.Option("--from", help="A time in ISO 8601 or, not for Kafka, a position. Default: the beginning."),
    ] = None,
    end: Annotated[str | None, typer.Option("--to", help="The same, exclusive. Default: the end.")] = None,
    table: Annotated[list[str] | None, typer.Option("--table", help="Only this one. May be repeated.")] = None,
    source: Annotated[BackfillOrigin, typer.Option("--source", help="Where history is read.")] = BackfillOrigin.BRONZE,
    dump: Annotated[
        str | None, typer.Option("--dump", help="Read a dump of the one --table: Parquet, a file or a folder.")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option("--at", help=f"The position at which the dump was taken ({position_examples()})."),
    ] = None,
    rebuild: Annotated[
        bool,
        typer.Option("--rebuild", help="Recompute tables from all events, and replace the live ones."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be read.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole trace of a failure.")] = False,
) -> None:
    """Merge the events of a window again: to fill a new table, after a change of the pipeline's file, or from an
    archive, a topic or a dump that reaches further back. A stream may run meanwhile; events that are merged twice
    change nothing.

    An interrupted backfill continues when the same command is repeated. A
    time is the one at which a record was written to its topic.

    Example: ingest backfill claims --from 2026-01-01 --to 2026-02-01 --table claims.members
    """
    del debug
    loaded = load(pipeline)
    if rebuild:
        if begin is not None or end is not None or source is not BackfillOrigin.BRONZE or dry_run:
            raise ConfigError("--rebuild recomputes from all events", "give no other option with it than --table")
        _rebuild(loaded, tuple(table or ()), as_json)
        return
    if dump is not None or at is not None:
        request = _of_dump(loaded, dump, at, tuple(table or ()))
    else:
        request = _of_window(loaded, source, begin, end, tuple(table or ()))
    with running(f"ingest backfill {loaded.name}", loaded.session) as spark, guarded(spark, loaded, as_json):
        if dry_run:
            counts = planned(spark, loaded, request)
            if source is BackfillOrigin.BRONZE and dump is None:
                _require(spark, loaded, request.tables, counts)
            _show_plan(counts, as_json)
            return
        work, accounts = _merge(spark, loaded, request, as_json)
        if work.done:
            _require(spark, loaded, request.tables, [account.table for account in accounts])
    _show(loaded, work.run.number, by_table(accounts), work.done, as_json)
    require_all_merged(loaded.name, work.set_aside)
    if not work.done:
        raise typer.Exit(EXIT_TRANSIENT)


def _merge(
    spark: SparkSession, pipeline: Pipeline, request: BackfillRequest, as_json: bool
) -> tuple[Backfill, list[Account]]:
    """Merges the requested events until all are merged or a signal stops it. Returns the backfill and its accounts."""
    accounts: list[Account] = []
    with (
        stop_on_signal() as stop,
        event_bar(as_json, lambda: sum(planned(spark, pipeline, request).values())) as advance,
    ):

        def merge(progressed: OnProgress) -> Backfill:
            with Backfill(spark, pipeline, request) as work:
                while not stop.is_set() and not work.done:
                    step = work.step()
                    progressed()
                    accounts.extend(step.accounts)
                    advance(step.accounts)
            return work

        return Retries(spark, pipeline, stop, wait_reporter(as_json))(merge), accounts


def _require(spark: SparkSession, pipeline: Pipeline, tables: Sequence[str], found: Container[str | None]) -> None:
    """Raises ConfigError for a table that is neither in `found` nor in the pipeline's catalog."""
    absent = [table for table in tables if table not in found]
    Catalog(spark, pipeline.layout.tables).require(pipeline.name, absent)


def _of_window(
    pipeline: Pipeline, source: BackfillOrigin, begin: str | None, end: str | None, tables: tuple[str, ...]
) -> BackfillRequest:
    epoch = len(pipeline.source.epochs)
    begin_point, end_point = (
        text and point(option, text, epoch) for option, text in (("--from", begin), ("--to", end))
    )
    return BackfillRequest(source.value, begin_point or None, end_point or None, tables)


def _of_dump(pipeline: Pipeline, path: str | None, at: str | None, tables: tuple[str, ...]) -> BackfillRequest:
    if path is None or at is None or len(tables) != 1:
        raise ConfigError(
            "a backfill from a dump needs a table and a position", "give --dump, --at and --table together"
        )
    place = point("--at", at, len(pipeline.source.epochs))
    if place.time is not None:
        raise ConfigError(f"--at {at} is no position", f"give the position of the dump's snapshot, {position_forms()}")
    return BackfillRequest("dump", tables=tables, dump=Dump(path, tables[0], place))


def _rebuild(pipeline: Pipeline, tables: tuple[str, ...], as_json: bool) -> None:
    with (
        running(f"ingest backfill {pipeline.name}", pipeline.session) as spark,
        guarded(spark, pipeline, as_json),
        event_bar(as_json) as advance,
    ):
        Catalog(spark, pipeline.layout.tables).require(pipeline.name, tables)

        def rebuild(progressed: OnProgress) -> list[str]:
            def reported(accounts: Sequence[Account]) -> None:
                progressed()
                advance(accounts)

            return [entry.table_schema.table for entry in Rebuild(spark, pipeline, tables).run(reported)]

        rebuilt = retry_while_away(spark, pipeline, as_json, rebuild)
    typer.echo(json.dumps({"rebuilt": rebuilt}, ensure_ascii=False) if as_json else f"rebuilt: {', '.join(rebuilt)}")


def _show_plan(counts: Mapping[str, int], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"dry_run": True, "would_read": dict(counts)}, ensure_ascii=False))
        return
    table = Table("table or topic", "events")
    for name, count in counts.items():
        table.add_row(name, f"{count:,}")
    plain_console().print(table)


def _show(pipeline: Pipeline, number: int, accounts: Sequence[Account], done: bool, as_json: bool) -> None:
    if as_json:
        tables = {a.table: {c: getattr(a, c) for c in COUNTS} for a in accounts}
        typer.echo(json.dumps({"backfill": number, "complete": done, "tables": tables}, ensure_ascii=False))
        return
    table = Table("table", *COUNTS, title=f"backfill {number} of {pipeline.name}")
    for account in accounts:
        table.add_row(account.table or WITHOUT_TABLE, *(f"{getattr(account, c):,}" for c in COUNTS))
    plain_console().print(table)
    typer.echo("complete" if done else "stopped on request: the same command continues where it stopped")
