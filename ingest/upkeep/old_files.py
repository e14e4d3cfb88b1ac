"""Deletes files that only old versions of a pipeline's tables need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.sql import SparkSession

from ingest.backfill.source_readers import source_readers
from ingest.config import Pipeline
from ingest.delta import read_table
from ingest.delta.vacuum import remove_old_files, remove_old_versions
from ingest.lakehouse.catalog import Catalog
from ingest.names import Lakehouse


def every_table(spark: SparkSession, pipeline: Pipeline) -> list[str]:
    """Returns the folders of all tables of a pipeline, including those that it shares with other pipelines."""
    layout = pipeline.layout
    shared = [layout.accounts, layout.tables, layout.backfills, layout.ledger, layout.history_facts]
    entries = Catalog(spark, layout.tables).entries(pipeline.name)
    return [
        *event_folders(spark, pipeline),
        *table_folders(layout, pipeline.name, [e.table_schema.table for e in entries]),
        *shared,
    ]


def event_folders(spark: SparkSession, pipeline: Pipeline) -> list[str]:
    """Returns the folders of the tables that store whole events (bronze, quarantine), and of the subject index."""
    return [
        *(reader.path for reader in source_readers(spark, pipeline)),
        pipeline.layout.quarantine,
        pipeline.layout.subject_index,
    ]


def table_folders(layout: Lakehouse, pipeline: str, tables: Sequence[str]) -> Iterator[str]:
    """Yields the folders of silver, pending rows, tombstones, histories and change tables of these tables."""
    for table in tables:
        for place in (layout.silver, layout.pending, layout.tombstones, layout.history, layout.changes):
            yield place(pipeline, table)


def existing_tables(spark: SparkSession, folders: Sequence[str]) -> list[str]:
    """Returns the folders that hold a Delta table."""
    return [folder for folder in folders if read_table.exists(spark, folder)]


def vacuum(spark: SparkSession, folders: Sequence[str], hours: int) -> int:
    """Deletes the files and log entries that no version younger than `hours` needs. Returns the number of tables.

    Older versions can't be read any more, and a writer whose transaction takes longer fails to commit.
    """
    tables = existing_tables(spark, folders)
    remove_old_versions(spark, tables, hours)
    return len(tables)


def without_old_files(spark: SparkSession, folders: Sequence[str], hours: int) -> None:
    """Deletes the files that no version younger than `hours` needs; keeps the log entries."""
    remove_old_files(spark, existing_tables(spark, folders), hours)
