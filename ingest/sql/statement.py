"""Parses read-only statements. A statement runs if `allowed` lists every part of the plan that Spark's parser makes of
it, so what a later version of Spark or Delta adds is refused until it is listed."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from ingest.errors import ConfigError
from ingest.jvm.sql import ParsedStatement, builtin_functions, group_of_function
from ingest.names import nearest
from ingest.sql import allowed

_QUALIFIERS = ("system.builtin.", "builtin.")
_WHAT_READS = "run one query, SHOW, DESCRIBE or EXPLAIN at a time; tables change through `ingest run` alone"


class ReadOnlyStatement:
    """A parsed read-only statement. Raises ConfigError for any other statement, and the parser's exception for invalid
    SQL.

    `feeds`: names or paths of the tables whose change data feed it reads.
    """

    def __init__(self, spark: SparkSession, text: str) -> None:
        self._parsed = ParsedStatement(spark, text)
        _require_reading(self._parsed.plans, self._parsed.expressions)
        for function in sorted(self._parsed.functions):
            _require_pure(spark, function)
        self.feeds = self._parsed.feeds

    def run(self) -> DataFrame:
        """Analyses the plan that was checked and, unless it is a query, executes it. The text is not parsed again."""
        return self._parsed.run()


def is_pure(spark: SparkSession, function: str) -> bool:
    """Returns True for a function of Spark or Delta that only computes a value."""
    if function in allowed.DELTA_FUNCTIONS:
        return True
    group = group_of_function(spark, function)
    return group is not None and allowed.is_function(function, group)


def functions(spark: SparkSession) -> list[str]:
    """Returns the names of Spark's and Delta's built-in functions."""
    return sorted({*allowed.DELTA_FUNCTIONS, *map(_unqualified, builtin_functions(spark))})


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
