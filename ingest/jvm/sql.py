"""Spark's SQL parser, its registries of functions, and its catalogs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ingest.jvm.classes import java_class
from ingest.jvm.constructors import function_identifier
from ingest.jvm.library import require_library
from ingest.jvm.plans import frame_of

_ANALYSIS = "org.apache.spark.sql.catalyst.analysis"
_REGISTRIES = ("FunctionRegistry", "TableFunctionRegistry")


class ParsedStatement:
    """A statement as Spark's parser reads it, neither analysed nor run. Raises the parser's exception for invalid SQL.

    `plans`, `expressions`: names of the classes in its plan. `functions`: their names, as written. `feeds`: names or
    paths of the tables whose change data feed it reads."""

    def __init__(self, spark: SparkSession, text: str) -> None:
        require_library(spark.sparkContext, "the check that a statement only reads")
        self._spark = spark
        self._plan = _session(spark).sessionState().sqlParser().parsePlan(text)
        parts = java_class(spark._jvm, "ingest.sql.PlanParts")(self._plan)
        self.plans = _strings(parts.plans())
        self.expressions = _strings(parts.expressions())
        self.functions = _strings(parts.functions())
        self.feeds = _strings(parts.feeds())

    def run(self) -> DataFrame:
        """Analyses the plan and, unless it is a query, executes it. The text is not parsed again."""
        return frame_of(self._spark, self._plan)


def builtin_functions(spark: SparkSession) -> set[str]:
    """Returns the names of Spark's built-in functions, without those that a session has registered."""
    return {name for one in _registries(spark) for name in one.listFunction().mkString("\n").split("\n")}


def group_of_function(spark: SparkSession, name: str) -> str | None:
    """Returns the group that Spark's documentation puts a built-in function into; None if there is no such function."""
    identifier = function_identifier(spark._jvm, name)
    for found in (registry.lookupFunction(identifier) for registry in _registries(spark)):
        if found.isDefined():
            return str(found.get().getGroup())
    return None


def _registries(spark: SparkSession) -> list[Any]:
    return [java_class(spark._jvm, f"{_ANALYSIS}.{name}$.MODULE$").builtin() for name in _REGISTRIES]


@contextmanager
def current_catalog(spark: SparkSession, name: str, tables: Iterable[tuple[Sequence[str], str, str]]) -> Iterator[None]:
    """Makes a read-only catalog current in the block. `tables`: namespace, name in it, and path of each. No table is
    read before a query names it."""
    require_library(spark.sparkContext, "SQL on tables by their names")
    manager = _session(spark).sessionState().catalogManager()
    spark.conf.set(f"spark.sql.catalog.{name}", "ingest.sql.NamedTables")
    catalog, before = manager.catalog(name), manager.currentCatalog().name()
    catalog.clear()
    catalog.readThrough(manager.catalog("spark_catalog"))
    for namespace, table, path in tables:
        catalog.add(list(namespace), table, path)
    manager.setCurrentCatalog(name)
    try:
        yield
    finally:
        manager.setCurrentCatalog(before)


def _strings(names: Any) -> set[str]:
    """Returns the texts in a Java collection, without the "$" that ends the names of Scala's objects."""
    return {str(name).removesuffix("$") for name in names}


def _session(spark: SparkSession) -> Any:
    return spark._jsparkSession
