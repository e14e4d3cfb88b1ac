"""Deletes files that only old versions of a pipeline's tables need."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from ingest.config import Pipeline
from ingest.delta.vacuum import existing_tables, remove_old_versions
from ingest.erasure.places.register import delta_folders
from ingest.lakehouse.catalog import Catalog
from ingest.names import Lakehouse


def every_table(spark: SparkSession, pipeline: Pipeline) -> list[str]:
    """Returns the folders of all tables of a pipeline, including those that it shares with other pipelines."""
    entries = Catalog(spark, pipeline.layout.tables).entries(pipeline.name)
    with_rows = delta_folders(spark, pipeline, [e.table_schema.table for e in entries])
    return [*with_rows, *tables_without_rows(pipeline.layout)]


def tables_without_rows(layout: Lakehouse) -> list[str]:
    """Returns the tables that hold nothing of a source's rows, so that they are no places of an erasure."""
    of_schemas = [layout.tables, layout.schemas, layout.registered_schemas, layout.schema_outcomes]
    return [*of_schemas, layout.accounts, layout.backfills, layout.ledger, layout.history_facts]


def vacuum(spark: SparkSession, folders: Sequence[str], hours: int) -> int:
    """Deletes the files and log entries that no version younger than `hours` needs. Returns the number of tables.

    Older versions can't be read any more, and a writer whose transaction takes longer fails to commit.
    """
    tables = existing_tables(spark, folders)
    remove_old_versions(spark, tables, hours)
    return len(tables)
