"""Parses read-only statements. A statement runs if `allowed` lists every part of the plan that Spark's parser makes of
it, so what a later version of Spark or Delta adds is refused until it is listed."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ingest.errors import ConfigError
from ingest.jvm.classes import java_class, scala_object
from ingest.jvm.library import require_library
from ingest.names import nearest
from ingest.sql import allowed

_SQL = "org.apache.spark.sql"
_QUALIFIERS = ("system.builtin.", "builtin.")
_WHAT_READS = "run one query, SHOW, DESCRIBE or EXPLAIN at a time; tables change through `ingest run` alone"


class ReadOnlyStatement:
    """A parsed read-only statement. Raises ConfigError for any other statement, and the parser's exception for invalid
    SQL.

    `feeds`: names or paths of the tables whose change data feed it reads.
    """

    def __init__(self, spark: SparkSession, text: str) -> None:
        self._spark = spark
        require_library(spark.sparkContext, "the check that a statement only reads")
        self._plan = _session(spark).sessionState().sqlParser().parsePlan(text)
        parts = java_class(spark._jvm, "ingest.sql.PlanParts")(self._plan)
        _require_reading(_strings(parts.plans()), _strings(parts.expressions()))
        for function in sorted(_strings(parts.functions())):
            _require_pure(spark, function)
        self.feeds = _strings(parts.feeds())

    def run(self) -> DataFrame:
        """Analyses the plan that was checked and, unless it is a query, executes it. The text is not parsed again."""
        dataset = java_class(self._spark._jvm, f"{_SQL}.classic.Dataset")
        return DataFrame(dataset.ofRows(_session(self._spark), self._plan), self._spark)


def is_pure(spark: SparkSession, function: str) -> bool:
    """Returns True for a function of Spark or Delta that only computes a value."""
    if function in allowed.DELTA_FUNCTIONS:
        return True
    identifier = java_class(spark._jvm, f"{_SQL}.catalyst.FunctionIdentifier")(function)
    for found in (registry.lookupFunction(identifier) for registry in _registries(spark)):
        if found.isDefined():
            return allowed.is_function(function, found.get().getGroup())
    return False


def functions(spark: SparkSession) -> list[str]:
    """Returns the names of Spark's and Delta's built-in functions."""
    listed = (registry.listFunction().mkString("\n").split("\n") for registry in _registries(spark))
    return sorted({*allowed.DELTA_FUNCTIONS, *(_unqualified(name) for names in listed for name in names)})


def _registries(spark: SparkSession) -> list[Any]:
    """Returns the registries of Spark's built-in functions, without those that a session has registered."""
    jvm: Any = spark._jvm
    package = jvm.org.apache.spark.sql.catalyst.analysis
    return [scala_object(package, name).builtin() for name in ("FunctionRegistry", "TableFunctionRegistry")]


def _require_reading(plans: set[str], expressions: set[str]) -> None:
    unknown = plans - allowed.PLANS | {name for name in expressions if not allowed.is_expression(name)}
    if unknown:
        named = {name.rpartition(".")[2].partition("$")[0] for name in unknown}  # A closure has the name of its class.
        what = ", ".join(sorted(named))
        raise ConfigError(f"the statement is not read-only ({what}), so it was not run", _WHAT_READS)


def _require_pure(spark: SparkSession, written: str) -> None:
    name = _unqualified(written.lower())
    if not is_pure(spark, name):
        known = [one for one in functions(spark) if is_pure(spark, one)]
        raise ConfigError(
            f"{written} is not a function of Spark that only computes a value, so the statement was not run",
            nearest(name, known, "see the functions with SHOW FUNCTIONS"),
        )


def _unqualified(function: str) -> str:
    for qualifier in _QUALIFIERS:
        function = function.removeprefix(qualifier)
    return function


def _strings(names: Any) -> set[str]:
    """Returns the texts in a Java collection, without the "$" that ends the names of Scala's objects."""
    return {str(name).removesuffix("$") for name in names}


def _session(spark: SparkSession) -> Any:
    return spark._jsparkSession
