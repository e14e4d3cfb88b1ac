"""`ingest sql`: queries silver by the source's table names."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from pyspark.sql import DataFrame, SparkSession
from rich.table import Table

from ingest.cli import personal
from ingest.cli.guarded import guarded
from ingest.cli.printing import plain_console
from ingest.config import Pipeline, load
from ingest.errors import ConfigError, IngestError
from ingest.failures.conversion import RunFailed, to_ingest_error
from ingest.lakehouse.catalog import Catalog
from ingest.names import Lakehouse
from ingest.pipeline.shredding import decrypted_rows
from ingest.shredding.owners import shredded_of
from ingest.spark.session import running
from ingest.sql.failures import explain_query_failures
from ingest.sql.named_tables import named_tables
from ingest.sql.query_names import PipelineTable, QueryNames, query_names
from ingest.sql.statement import ReadOnlyStatement

_DEFAULTS = {
    "spark.sql.debug.maxToStringFields": "1000",  # EXPLAIN shows all columns.
    # Copies a filter on a join key to the other side: speeds queries up, but slows merges of wide tables down.
    "spark.sql.constraintPropagation.enabled": "true",
}


def sql(
    query: Annotated[str, typer.Argument(help='A SELECT, SHOW, DESCRIBE or EXPLAIN; "-" reads it from stdin.')],
    pipeline: Annotated[
        str | None, typer.Option("--pipeline", "-p", help="Use this pipeline's lakehouse and Spark settings.")
    ] = None,
    lakehouse: Annotated[str | None, typer.Option(help="A lakehouse's folder or URI.")] = None,
    decrypt: Annotated[
        bool,
        typer.Option("--decrypt", help="Also offer tables with decrypted columns, as <table>__decrypted."),
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of rows to print.")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per row.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole trace of a failure.")] = False,
) -> None:
    """Query silver tables by name: schema.table as in the source, or pipeline.schema.table if several pipelines have
    such a table. With --pipeline, schema.table means that pipeline's table. Statements that write are refused.

    Example: ingest sql --pipeline claims "SELECT count(*) FROM claims.accident_claims"
    """
    del debug
    if (pipeline is None) == (lakehouse is None):
        raise ConfigError("sql needs exactly one of --pipeline and --lakehouse", "give one of them")
    if decrypt and pipeline is None:
        raise ConfigError("--decrypt needs --pipeline", "give --pipeline: its file names the key store")
    text = personal.read(query, "the query") if query == personal.STDIN else query
    loaded = load(pipeline) if pipeline is not None else None
    root = loaded.lakehouse if loaded is not None else str(lakehouse)
    if "://" not in root:
        root = str(Path(root).absolute())  # Spark resolves a table's relative path below its own warehouse.
    with (
        _session(loaded) as spark,
        nullcontext() if loaded is None else guarded(spark, loaded, as_json),
        explain_query_failures(spark, partial(_elsewhere, loaded)) as query_state,
    ):
        statement = ReadOnlyStatement(spark, text)
        query_state.feeds = frozenset(statement.feeds)
        query_state.tables = names_in(spark, Lakehouse(root), loaded.name if loaded else None)
        if decrypt and loaded is not None:
            register_decrypted_views(spark, loaded)
        with named_tables(spark, query_state.tables):
            _show(statement.run(), limit, as_json)


def _elsewhere(pipeline: Pipeline | None, error: Exception) -> IngestError | None:
    """Returns the error for a failure outside of the query, such as an unreachable store; None if the query itself
    failed."""
    found = to_ingest_error(error, pipeline) if pipeline is not None else None
    return None if isinstance(found, RunFailed) else found


@contextmanager
def _session(pipeline: Pipeline | None) -> Iterator[SparkSession]:
    """Yields a session with the pipeline's settings and a temporary in-memory catalog."""
    warehouse = tempfile.mkdtemp(prefix="ingest-sql-")
    settings = {"spark.sql.catalogImplementation": "in-memory", "spark.sql.warehouse.dir": warehouse}
    try:
        with running("ingest sql", {**_DEFAULTS, **(pipeline.session if pipeline else {}), **settings}) as spark:
            yield spark
    finally:
        shutil.rmtree(warehouse, ignore_errors=True)


def names_in(spark: SparkSession, lakehouse: Lakehouse, pipeline: str | None = None) -> QueryNames:
    """Returns the names of all tables of a lakehouse: silver, row histories (`table__history`) and the lakehouse's own
    tables (`system.…`). `pipeline`: whose table is meant by a name that several pipelines have."""
    system_tables = {"system.quarantine": lakehouse.quarantine, "system.accounts": lakehouse.accounts}
    system_tables["system.ledger"] = lakehouse.ledger
    sources = []
    for entry in Catalog(spark, lakehouse.tables).entries():
        table = entry.table_schema.table
        paths = {"": lakehouse.silver(entry.pipeline, table), "__history": lakehouse.history(entry.pipeline, table)}
        sources.append(PipelineTable(entry.pipeline, table, paths))
    return query_names(sources, system_tables, pipeline)


def register_decrypted_views(spark: SparkSession, pipeline: Pipeline) -> None:
    """Registers decrypted views of the tables with shredded columns in this session, as `table__decrypted`; prefixed by
    the schema if two tables share a name. Raises ConfigError if no table is shredded or the keys can't be read."""
    entries = Catalog(spark, pipeline.layout.tables).entries(pipeline.name)
    sealed = [e.table_schema.table for e in entries if e.table_schema.table in shredded_of(pipeline.tables).columns]
    if not sealed:
        raise ConfigError(
            f"no table of {pipeline.name} has shredded columns",
            "query it without --decrypt, or declare tables.…: shred",
        )
    last = Counter(table.rpartition(".")[2] for table in sealed)
    for table in sealed:
        name = table.rpartition(".")[2]
        view = name if last[name] == 1 else table.replace(".", "__")
        decrypted_rows(spark, pipeline, table).createOrReplaceTempView(f"{view}__decrypted")


def _show(frame: DataFrame, limit: int, as_json: bool) -> None:
    rows = frame.limit(limit).collect()  # bounded by --limit
    console = plain_console()
    if as_json:
        for row in rows:
            console.out(json.dumps(row.asDict(recursive=True), ensure_ascii=False, default=str))
        return
    table = Table(*frame.columns)
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    console.print(table)


def _cell(value: Any) -> str:
    return "NULL" if value is None else str(value)
