"""A read-only Spark catalog of a lakehouse's tables by the names of `table_names`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from ingest.jvm.sql import current_catalog
from ingest.sql.query_names import QueryNames


@contextmanager
def named_tables(spark: SparkSession, names: QueryNames) -> Iterator[None]:
    """Makes the tables known in the block, in a catalog that is current there. No table is read before a query names
    it."""
    tables = [(one.namespace, one.name, one.path) for one in names.tables]
    with current_catalog(spark, _free_name(names), tables):
        yield


def _free_name(names: QueryNames) -> str:
    """Returns a catalog name that no schema or pipeline has: in `a.b`, Spark resolves `a` as a catalog first."""
    taken = {one.text.partition(".")[0] for one in names.tables} | {text.partition(".")[0] for text in names.several}
    name = "lakehouse"
    while name in taken:
        name += "_"
    return name
