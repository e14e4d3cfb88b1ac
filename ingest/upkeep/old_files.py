"""Old files of a pipeline's tables: those that no version has that is young enough to be asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.sql import SparkSession

from ingest.backfill.readers import readers
from ingest.config import Pipeline
from ingest.delta import read_table
from ingest.delta.vacuum import files_removed, removed
from ingest.lakehouse.catalog import Catalog
from ingest.names import Lakehouse


def every_table(spark: SparkSession, pipeline: Pipeline) -> list[str]:
    """The folders of all tables of a pipeline, and of those that it shares with others."""
    layout = pipeline.layout
    shared = [layout.accounts, layout.tables, layout.backfills, layout.ledger, layout.known_history]
    entries = Catalog(spark, layout.tables).entries(pipeline.name)
    return [*raw(spark, pipeline), *folded(layout, pipeline.name, [e.shape.table for e in entries]), *shared]


def raw(spark: SparkSession, pipeline: Pipeline) -> list[str]:
    """Where events are kept as they came, and what is known of whom they name."""
    return [
        *(reader.path for reader in readers(spark, pipeline)),
        pipeline.layout.quarantine,
        pipeline.layout.subject_index,
    ]


def folded(layout: Lakehouse, pipeline: str, tables: Sequence[str]) -> Iterator[str]:
    """Where these tables are kept, with all that stands beside them."""
    for table in tables:
        for place in (layout.silver, layout.pending, layout.tombstones, layout.history, layout.changes):
            yield place(pipeline, table)


def there(spark: SparkSession, folders: Sequence[str]) -> list[str]:
    """Those of them in which there is a table by now."""
    return [folder for folder in folders if read_table.exists(spark, folder)]


def vacuum(spark: SparkSession, folders: Sequence[str], hours: int) -> int:
    """Deletes what no version younger than `hours` needs, of the tables that are there: how many those were. Nobody
    reads older versions from then on, and who has been writing for longer loses what he has not committed."""
    tables = there(spark, folders)
    removed(spark, tables, hours)
    return len(tables)


def without_old_files(spark: SparkSession, folders: Sequence[str], hours: int) -> None:
    """The same of files alone: logs tell what was there."""
    files_removed(spark, there(spark, folders), hours)
