"""Filters the pages of Parquet files by the values of a column, without the values in Spark's plan.

Spark pushes filters down as literals of the plan, which end up in event logs. Keys may be personal: here they go to the
Parquet readers alone, as a filter in their configuration.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ingest.jvm import constructors
from ingest.jvm.classes import java_class
from ingest.jvm.plans import frame_of
from ingest.names import identifier

_VALUES_A_FILTER = 128
"""Values of one IN filter, which makes a chain of comparisons. Such filters are combined into a balanced tree, because
readers recurse into them."""
_FILTER = "parquet.private.read.filter.predicate"
_OPTIONS = {
    # These filter whole row groups, and would search every dictionary for every key.
    "parquet.filter.dictionary.enabled": "false",
    "parquet.filter.bloom.enabled": "false",
    # Reads neighbouring pages at once; in an object store each would be a request.
    "parquet.hadoop.vectored.io.enabled": "true",
}


class CollectedValues:
    """The values of a column and counts of them: a row that stays in the JVM, because through Python its values would
    have to be converted there and back exactly."""

    def __init__(self, summary: DataFrame) -> None:
        """`summary`: one row of an array of values, the number of rows with a value, and of rows with a null."""
        java: Any = summary._jdf
        self._row = java.collectAsList().get(0)

    @property
    def rows(self) -> int:
        return int(self._row.getLong(1))

    @property
    def nulls(self) -> int:
        return int(self._row.getLong(2))

    @property
    def values(self) -> Any:
        """Returns the values as a Java list."""
        return self._row.getList(0)


def with_page_filter(rows: DataFrame, in_files: DataFrame, wanted: CollectedValues) -> DataFrame:
    """Returns `rows`, a scan of Parquet files, without most of the pages that hold none of the `wanted` values; the
    same rows if Parquet can't compare the type, or if there are no values. `in_files`: the column to compare, alone and
    with its name in the files."""
    spark = rows.sparkSession
    predicate = _in_filter(spark, in_files, wanted.values)
    return rows if predicate is None else _with_options(spark, rows, _OPTIONS | {_FILTER: predicate})


class _Classes:
    """Classes of Parquet, each looked up once, and what is made once per session."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self.calendar = constructors.proleptic_calendar(jvm)
        self.either = getattr(jvm.org.apache.parquet.filter2.predicate.FilterApi, "or")
        self.input = java_class(jvm, "org.apache.parquet.hadoop.ParquetInputFormat")
        self.configuration = java_class(jvm, "org.apache.hadoop.conf.Configuration")
        # A reader has one filter: one that Spark pushes down (a joined key is not null) would replace it.
        self.session = spark._jsparkSession.newSession()
        self.session.conf().set("spark.sql.parquet.filterPushdown", "false")
        # Each task parses the filter, and reads almost nothing of its files.
        self.session.conf().set("spark.sql.files.maxPartitionBytes", str(128 << 20))


@cache
def _classes(spark: SparkSession) -> _Classes:
    return _Classes(spark)


def _in_filter(spark: SparkSession, column: DataFrame, values: Any) -> str | None:
    """Returns the filter that `column` is one of `values`, as Parquet serializes it into a configuration; None if
    Parquet can't compare the type, or without values."""
    classes, jvm = _classes(spark), spark._jvm
    schema = column._jdf.schema()
    message = constructors.parquet_schemas(jvm, spark._jsparkSession.sessionState().conf()).convert(schema)
    filters = constructors.parquet_filters(jvm, message, _VALUES_A_FILTER, classes.calendar)
    # In Spark's filters a name with dots is a path unless it is quoted.
    name = schema.apply(0).name()
    name = identifier(name) if "." in name else name
    parts = []
    for at in range(0, values.size(), _VALUES_A_FILTER):
        chunk = values.subList(at, min(at + _VALUES_A_FILTER, values.size())).toArray()
        predicate = filters.createFilter(constructors.in_filter(jvm, name, chunk))
        if predicate.isEmpty():
            return None
        parts.append(predicate.get())
    while len(parts) > 1:
        pairs = [classes.either(*parts[i : i + 2]) for i in range(0, len(parts) - 1, 2)]
        parts = pairs + parts[len(pairs) * 2 :]
    if not parts:
        return None
    configuration = classes.configuration(False)
    classes.input.setFilterPredicate(configuration, parts[0])
    return str(configuration.get(_FILTER))


def _with_options(spark: SparkSession, rows: DataFrame, options: dict[str, str]) -> DataFrame:
    """Returns the same scan with `options` for its Parquet readers."""
    scan = rows._jdf.queryExecution().analyzed()
    relation = scan.relation()
    all_options = relation.options()
    for key, value in options.items():
        all_options = all_options.updated(key, value)
    configured = constructors.relation_with_options(relation, all_options, _classes(spark).session)
    return frame_of(spark, constructors.scan_of_relation(scan, configured))
