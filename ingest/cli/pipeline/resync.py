"""`ingest resync`: reads a table at its source again, while its changes go on."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from pyspark.sql import SparkSession
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from ingest.backfill.resync import Resync, ResyncRequest, TableRead
from ingest.backfill.whole_read import WholeRead
from ingest.cli.guarded import guarded
from ingest.cli.printing import plain_console
from ingest.config import Pipeline, load
from ingest.connector.signals import SnapshotNotice
from ingest.errors import ConfigError
from ingest.lakehouse.catalog import Catalog
from ingest.sources.signal_table import SignalTable
from ingest.spark.session import running

_DEFAULT_PATIENCE = 300.0
_DSN = "INGEST_SOURCE_DSN"


def resync(
    pipeline: Annotated[str, typer.Argument(help="A pipeline's name or file.")],
    table: Annotated[str, typer.Argument(help="The table, as `ingest status` names it.")],
    where: Annotated[
        str | None,
        typer.Option("--where", help="Read only the rows that meet this predicate, in the source's SQL."),
    ] = None,
    signal_table: Annotated[
        str | None,
        typer.Option(
            "--signal-table",
            help="Write the signal to this table (schema.table) of the source, over the connection in "
            "INGEST_SOURCE_DSN or source.database, in place of the Kafka topic. Needed for a table that changes "
            "all the time.",
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", help="Seconds to wait for the connector's next notification.")
    ] = _DEFAULT_PATIENCE,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole trace of a failure.")] = False,
) -> None:
    """Read a table at its source again, in chunks, while its changes go on.

    Heals rows that were never captured, values that are out of date, and rows
    whose delete was lost. Debezium takes an incremental snapshot; a read
    counts as new as where it stands in the log, so later changes win. The
    pipeline merges the reads when it runs next, and then removes the rows
    that the whole read lacks. With --where no row is removed.

    Example: ingest resync claims public.claims --where "id BETWEEN 100 AND 200"
    """
    del debug
    loaded = load(pipeline)
    database = _database(loaded)
    work = Resync(loaded, ResyncRequest(table, where), timeout, _signal_table(signal_table, database), database)
    if where is not None:
        with _chunk_bar(as_json) as report:
            found, removes = work.read(report), False
    else:
        with running(f"ingest resync {loaded.name}", loaded.session) as spark, guarded(spark, loaded, as_json):
            whole_read = _whole_read(spark, loaded, table)
            with _chunk_bar(as_json) as report:
                found = work.read(report, is_known=whole_read is not None)
            removes = whole_read is not None and whole_read.record(found, timeout)
    if as_json:
        document = {"table": table, "signal": found.signal, "rows": found.rows, "removes": removes}
        typer.echo(json.dumps(document, ensure_ascii=False))
        return
    typer.echo(_sentence(loaded.name, table, where, found))
    if removes:
        typer.echo("Rows that the source no longer holds are removed then.")


def _database(pipeline: Pipeline) -> str | None:
    """Returns the connection to the source's database; None if neither the environment nor the file names one."""
    configured = pipeline.source.database
    return os.environ.get(_DSN) or (configured.get_secret_value() if configured is not None else None)


def _signal_table(name: str | None, database: str | None) -> SignalTable | None:
    if name is None:
        return None
    if database is None or "." not in name:
        raise ConfigError(
            f"a signal in table {name} needs its schema and a connection",
            f"give --signal-table schema.table, and set {_DSN}, or source.database in the pipeline's file, to the "
            "source's connection string",
        )
    return SignalTable(name, database)


def _whole_read(spark: SparkSession, pipeline: Pipeline, table: str) -> WholeRead | None:
    """Returns the resync of a whole table; None of a table that silver does not have."""
    entries = {
        entry.table_schema.table: entry for entry in Catalog(spark, pipeline.layout.tables).entries(pipeline.name)
    }
    if table not in entries:
        return None
    if not entries[table].table_schema.key:
        raise ConfigError(
            f"table {table} has no key, so a row that is read again can't be told from a new one",
            "rebuild it from a new snapshot (a signal of type blocking)",
        )
    return WholeRead(spark, pipeline, entries[table])


def _sentence(pipeline: str, table: str, where: str | None, found: TableRead) -> str:
    rows = "" if found.rows is None else f"{found.rows:,} rows of "
    chosen = "" if where is None else " that meet the predicate"
    return f"{rows}{table}{chosen} were read again; `ingest run {pipeline}` merges them."


@contextmanager
def _chunk_bar(as_json: bool) -> Iterator[Callable[[SnapshotNotice], None]]:
    """Yields a function that shows a notification's chunk, on a terminal only."""
    console = plain_console(stderr=True)
    if as_json or not console.is_terminal:
        yield lambda notice: None
        return
    columns = (TextColumn("chunks"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as shown:
        task = shown.add_task("chunks", total=None)
        yield (
            lambda notice: (
                shown.update(task, completed=notice.chunk, total=notice.chunks) if notice.chunk is not None else None
            )
        )
