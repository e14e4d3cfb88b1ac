"""The catalog takes entries of several threads, and refuses each revision that another writer recorded."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ingest.delta.conflict_retry import CONFLICTS
from ingest.evolution.policies import TableColumn
from ingest.lakehouse.catalog import Catalog, CatalogEntry
from ingest.merge.table_schema import TableSchema
from ingest.values.types import Kind, LogicalType

pytestmark = pytest.mark.spark
TABLES = [f"s.t{number}" for number in range(12)]


def entry(table: str, topic: str, revision: int = 1) -> CatalogEntry:
    table_schema = TableSchema(table, ("id",), (TableColumn("id", LogicalType(Kind.INT64)),), revision)
    return CatalogEntry("shop", f"/silver/{table}", table_schema, revision, (topic,))


def test_only_entries_that_another_writer_recorded_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "tables")
    catalog, other = Catalog(spark, path), Catalog(spark, path)
    other.record(entry("s.t3", "other"))
    with ThreadPoolExecutor(len(TABLES)) as pool:
        outcomes = {table: pool.submit(catalog.record, entry(table, "own")) for table in TABLES}
    failed = {table: one.exception() for table, one in outcomes.items() if one.exception() is not None}
    assert failed.keys() == {"s.t3"}
    assert isinstance(failed["s.t3"], CONFLICTS)
    found = {one.table_schema.table: one.topics for one in other.entries("shop")}
    assert found == {table: ("other" if table == "s.t3" else "own",) for table in TABLES}
    assert len(other.revisions("shop")) == len(TABLES)
    catalog.record(entry("s.t3", "own", revision=2))
    with pytest.raises(CONFLICTS):
        other.record(entry("s.t3", "other", revision=2))
