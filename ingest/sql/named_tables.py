"""A read-only Spark catalog of a lakehouse's tables by the names of `table_names`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from ingest.jvm.library import require_library
from ingest.sql.query_names import QueryNames

_CLASS = "ingest.sql.NamedTables"


@contextmanager
def named_tables(spark: SparkSession, names: QueryNames) -> Iterator[None]:
    """Makes the tables known in the block, in a catalog that is current there. No table is read before a query names
    it."""
    require_library(spark.sparkContext, "SQL on tables by their names")
    session: Any = spark._jsparkSession
    manager = session.sessionState().catalogManager()
    catalog_name = _free_name(names)
    spark.conf.set(f"spark.sql.catalog.{catalog_name}", _CLASS)
    catalog, before = manager.catalog(catalog_name), manager.currentCatalog().name()
    catalog.clear()
    catalog.readThrough(manager.catalog("spark_catalog"))
    for one in names.tables:
        catalog.add(list(one.namespace), one.name, one.path)
    manager.setCurrentCatalog(catalog_name)
    try:
        yield
    finally:
        manager.setCurrentCatalog(before)


def _free_name(names: QueryNames) -> str:
    """Returns a catalog name that no schema or pipeline has: in `a.b`, Spark resolves `a` as a catalog first."""
    taken = {one.text.partition(".")[0] for one in names.tables} | {text.partition(".")[0] for text in names.several}
    name = "lakehouse"
    while name in taken:
        name += "_"
    return name
