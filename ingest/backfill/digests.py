"""Digests of a pipeline's tables."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from ingest.lakehouse.catalog import Catalog, CatalogEntry
from ingest.lakehouse.silver import Silver
from ingest.merge.row_versions import VALID_FROM, VALID_TO
from ingest.names import Lakehouse
from ingest.quality.digest import Digest, digest_of
from ingest.values.types import Kind, LogicalType


def table_digests(spark: SparkSession, lakehouse: Lakehouse, pipeline: str) -> dict[str, Digest]:
    """Returns table → digest of its live rows, for all tables in the catalog."""
    entries = Catalog(spark, lakehouse.tables).entries(pipeline)
    # Not by the entry's path: it is where the table was written, and a lakehouse may have been restored elsewhere.
    silver = {e.table_schema.table: Silver(spark, lakehouse.silver(pipeline, e.table_schema.table)) for e in entries}
    return {e.table_schema.table: entry_digest(e, silver[e.table_schema.table].rows()) for e in entries}


def history_digest(entry: CatalogEntry, rows: DataFrame) -> Digest:
    """Returns the digest of a table's row versions, including the times of their validity."""
    types = {c.name: c.type for c in entry.table_schema.columns if c.name in rows.columns}
    return digest_of(rows, types | dict.fromkeys((VALID_FROM, VALID_TO), LogicalType(Kind.TIMESTAMP_TZ)))


def entry_digest(entry: CatalogEntry, rows: DataFrame) -> Digest:
    """Returns the digest of `rows` over those of the table's columns that they have."""
    return digest_of(rows, {c.name: c.type for c in entry.table_schema.columns if c.name in rows.columns})
