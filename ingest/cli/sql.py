"""`ingest sql`: a query over silver, with tables by the names that the source gives them."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession
from rich.table import Table

from ingest.cli.printing import verbatim
from ingest.config import Pipeline, load
from ingest.errors import ConfigError
from ingest.names import Lakehouse, identifier
from ingest.privacy.shredding.owners import shredded_by
from ingest.run.shredding import rows_in_clear
from ingest.session import spark_session
from ingest.tables import read_table
from ingest.tables.catalog import Catalog


def sql(
    query: Annotated[str, typer.Argument(help="A SELECT. Tables are called as in the source.")],
    pipeline: Annotated[
        str | None, typer.Option("--pipeline", "-p", help="Take the lakehouse of this pipeline.")
    ] = None,
    lakehouse: Annotated[str | None, typer.Option(help="A lakehouse's folder or URI.")] = None,
    decrypt: Annotated[
        bool,
        typer.Option("--decrypt", help="Name tables with shredded columns in clear as <table>__decrypted, too."),
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="Most rows to print.")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per row.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole trace of a failure.")] = False,
) -> None:
    """Query silver tables by name.

    Example: ingest sql --pipeline claims "SELECT count(*) FROM claims.accident_claims"
    """
    del debug
    if (pipeline is None) == (lakehouse is None):
        raise ConfigError("which lakehouse to query is not clear", "give either --pipeline or --lakehouse")
    if decrypt and pipeline is None:
        raise ConfigError("nothing says where the keys are", "give --pipeline: its file names the key store")
    loaded = load(pipeline) if pipeline is not None else None
    root = loaded.lakehouse if loaded is not None else str(lakehouse)
    if "://" not in root:
        root = str(Path(root).absolute())  # Spark takes a table's relative place to be below its own warehouse.
    # Names live in this session alone; Spark would make a folder for each schema where the command is run.
    warehouse = tempfile.mkdtemp(prefix="ingest-sql-")
    spark = spark_session(
        "ingest sql",
        {
            "spark.sql.catalogImplementation": "in-memory",
            "spark.sql.warehouse.dir": warehouse,
            "spark.sql.debug.maxToStringFields": "1000",  # Who asks to EXPLAIN a query wants to see its columns.
        },
    )
    try:
        register(spark, Lakehouse(root))
        if decrypt and loaded is not None:
            register_in_clear(spark, loaded)
        _show(spark, query, limit, as_json)
    except (AnalysisException, ParseException) as error:
        condition = error.getCondition() or type(error).__name__
        first = str(error).strip().splitlines()[0]
        raise ConfigError(
            f"the query can't be run ({condition}): {first}", "see the tables with SHOW TABLES IN <schema>"
        ) from error
    finally:
        spark.stop()
        shutil.rmtree(warehouse, ignore_errors=True)


def register(spark: SparkSession, lakehouse: Lakehouse) -> None:
    """Makes every silver table of a lakehouse known to the session as `schema.table`, all versions of its rows as
    `schema.table__history`, and the lakehouse's own as `system.…`."""
    found = {"system.quarantine": lakehouse.quarantine, "system.accounts": lakehouse.accounts}
    found["system.ledger"] = lakehouse.ledger
    for entry in Catalog(spark, lakehouse.tables).entries():
        found[entry.shape.table] = lakehouse.silver(entry.pipeline, entry.shape.table)
        found[f"{entry.shape.table}__history"] = lakehouse.history(entry.pipeline, entry.shape.table)
    for name, path in found.items():
        if not read_table.exists(spark, path):
            continue
        schema, _, table = name.rpartition(".")
        space = identifier(schema or "default")
        spark.sql(f"CREATE SCHEMA IF NOT EXISTS {space}")
        spark.sql(f"CREATE TABLE IF NOT EXISTS {space}.{identifier(table)} USING delta LOCATION {_text(path)}")


def register_in_clear(spark: SparkSession, pipeline: Pipeline) -> None:
    """Makes the tables with shredded columns known in clear, for this session, as `table__decrypted`; with the schema
    before it where two are called alike. Raises ConfigError where the keys can't be read."""
    entries = Catalog(spark, pipeline.layout.tables).entries(pipeline.name)
    sealed = [e.shape.table for e in entries if e.shape.table in shredded_by(pipeline.tables).columns]
    if not sealed:
        raise ConfigError(
            f"no table of {pipeline.name} has shredded columns",
            "query it without --decrypt, or declare tables.…: shred",
        )
    last = Counter(table.rpartition(".")[2] for table in sealed)
    for table in sealed:
        name = table.rpartition(".")[2]
        view = name if last[name] == 1 else table.replace(".", "__")
        rows_in_clear(spark, pipeline, table).createOrReplaceTempView(f"{view}__decrypted")


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _show(spark: SparkSession, query: str, limit: int, as_json: bool) -> None:
    frame = spark.sql(query)
    rows = frame.limit(limit).collect()  # at most `limit` rows, for a person to read
    console = verbatim()
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
