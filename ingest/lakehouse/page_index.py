"""Rows of a few keys out of large files: Parquet tells of each page which values it holds at least and at most, so a
reader who names the keys skips the others. A file sorted by key has few pages that may hold one.

Spark pushes filters down only as literals of a plan, where they end in event logs. Keys may be personal: here they go
to Parquet's readers alone, as the filter in their configuration.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.changelog.change import quoted
from ingest.changelog.projection import Projection
from ingest.delta import file_index
from ingest.delta.data_file import DataFile
from ingest.delta.delta_table import Table
from ingest.jvm.classes import scala_object
from ingest.merge.key_join import joined_by_key
from ingest.names import identifier
from ingest.spark.checkpoints import checkpoint
from ingest.spark.prepared import Query

_SEARCHED = 16 << 20
"""Bytes of a table; all of a smaller one is read faster than a batch's keys are asked for."""
_IN_ONE_TASK = 4 << 20
"""Bytes of files that one task reads as fast as several."""
FEW_KEYS = 5000
"""Of more keys hardly a page can be skipped, and comparing with each takes longer than it saves."""
_AT_ONCE = 128
"""So many comparisons in a row, each of which is one call for it; of such rows a tree is made, for readers go down a
row by calls within calls."""
_ROWS_OF_A_PARTITION = (1 << 33) - 1
"""In Spark's increasing ids."""
_FILTER = "parquet.private.read.filter.predicate"
_OPTIONS = {
    # Whole row groups only: each key would look through the dictionary of each.
    "parquet.filter.dictionary.enabled": "false",
    "parquet.filter.bloom.enabled": "false",
    # Pages that lie near each other come in one read; of a store in the network each would be a request.
    "parquet.hadoop.vectored.io.enabled": "true",
}


def matching(
    table: Table,
    key: Sequence[str],
    wanted: DataFrame,
    named: Sequence[str] = (),
    few: bool = False,
    files: Sequence[DataFile] | None = None,
    located: bool = False,
    stored: Mapping[str, str] | None = None,
) -> tuple[DataFrame, bool]:
    """The rows of `table` whose `key` columns have values that they have in `wanted`; and whether `wanted` is found to
    have no more than `FEW_KEYS` rows. `named`: columns of `wanted` to come with them; then a row comes once for each
    that has its key there. `few`: the caller knows that of these there are no more. `files`: they lie in these.
    `located`: with their `LOCATION`. `stored`: columns that have other names in the table.

    The table is read once and not shuffled, only those of its columns that are asked for, and of a large table only
    what may hold one of a few keys."""
    searched = list(table.files().values()) if files is None else files
    keys = wanted.select(*map(quoted, (*key, *named)))
    # The filter must not be without this join: readers take a column that nobody asks for as one that is null.
    stored = stored or {}
    rows, known = _scan(table, key[0], wanted, searched, stored.get(key[0]))
    if stored:
        rows = rows.withColumnsRenamed({there: name for name, there in stored.items()})
    if named and few and sum(f.size for f in searched) <= _IN_ONE_TASK:
        # Each side in one partition, they are joined where they are read: nobody waits for keys that are sent around.
        rows, keys = rows.coalesce(1), keys.coalesce(1).hint("shuffle_hash")
    else:
        keys = F.broadcast(keys)
    found = file_index.located(rows) if located else rows
    return joined_by_key(found, keys, key, "inner" if named else "left_semi"), known


def near(
    table: Table,
    key: Sequence[str],
    wanted: DataFrame,
    query: Query,
    by: tuple[Hashable, ...] = (),
    located: bool = False,
    stored: Mapping[str, str] | None = None,
) -> DataFrame:
    """`query(*by, rows)` of rows of `table`, each asked for itself, with its `LOCATION` if `located`. Among them are
    all whose `key` columns have values that they have in `wanted`, of which there are few: of a small table they are
    all rows; of a larger one these, which several tasks have found by then."""
    files = list(table.files().values())
    if sum(f.size for f in files) <= _IN_ONE_TASK:
        return table.run_prepared(files, _of_located, (query, *by)) if located else table.run_prepared(files, query, by)
    found, _ = matching(table, key, wanted, located=located, stored=stored)
    return checkpoint(query(*by, found), eager=True)


def _of_located(query: Query, *of: Any) -> DataFrame:
    *by, rows = of
    return query(*by, file_index.located(rows))


def _scan(
    table: Table, column: str, wanted: DataFrame, files: Sequence[DataFile], stored: str | None = None
) -> tuple[DataFrame, bool]:
    """Returns the rows among which the wanted ones are, and whether these are found to be few. `stored`: the name of
    `column` in the table, where it has another one there."""
    rows = table.rows_in(files)
    if sum(f.size for f in files) <= _SEARCHED:
        return rows, False
    spark = rows.sparkSession
    keyed, told = _probe_client(column)
    found = keyed.of(wanted).agg(*told)
    # Stays in the JVM: a value that went through Python would have to come back as the same.
    row = found._jdf.collectAsList().get(0)
    if row.getLong(1) > FEW_KEYS or row.getLong(2):
        return rows, False
    there = stored or column
    in_files = rows.select(quoted(there).alias(table.physical_name(there)))
    predicate = _any_of(spark, in_files, row.getList(0))
    return rows if predicate is None else _with_options(spark, rows, _OPTIONS | {_FILTER: predicate}), True


@lru_cache(maxsize=512)
def _probe_client(column: str) -> tuple[Projection, tuple[Column, Column, Column]]:
    """The key of each row, and whether the row is an early one; of these all keys, and how many rows there are with a
    key, and with a null in its place."""
    # Not `limit`: Spark numbers its limits, and would compile what it generates for them anew each time.
    place = F.monotonically_increasing_id().bitwiseAND(_ROWS_OF_A_PARTITION)
    keyed = Projection((quoted(column).alias("key"), (place <= FEW_KEYS).alias("early")))
    keys = F.sort_array(F.collect_set(F.when(F.col("early"), F.col("key"))))
    nulls = F.count_if(F.col("key").isNull()).alias("nulls")
    return keyed, (keys.alias("keys"), F.count("key").alias("rows"), nulls)


class _Classes:
    """Of Parquet, and of Spark's way to it; each looked up once (`delta_jvm` says why)."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        sql = jvm.org.apache.spark.sql
        self.filters = sql.execution.datasources.parquet.ParquetFilters
        self.schemas = sql.execution.datasources.parquet.SparkToParquetSchemaConverter
        self.one_of = sql.sources.In
        policies = scala_object(sql.internal, "LegacyBehaviorPolicy")
        calendar = getattr(sql.catalyst.util, "RebaseDateTime$RebaseSpec")
        self.calendar = calendar(policies.CORRECTED(), jvm.scala.Option.empty())
        self.either = getattr(jvm.org.apache.parquet.filter2.predicate.FilterApi, "or")
        self.input = jvm.org.apache.parquet.hadoop.ParquetInputFormat
        self.configuration = jvm.org.apache.hadoop.conf.Configuration
        # Readers have one filter: what Spark itself pushes down (that a joined key isn't null) would take its place.
        self.session = spark._jsparkSession.newSession()
        self.session.conf().set("spark.sql.parquet.filterPushdown", "false")
        # Each task reads the filter anew, and almost nothing of its files.
        self.session.conf().set("spark.sql.files.maxPartitionBytes", str(128 << 20))


@cache
def _classes(spark: SparkSession) -> _Classes:
    """One per session."""
    return _Classes(spark)


def _any_of(spark: SparkSession, column: DataFrame, values: Any) -> str | None:
    """The filter as Parquet keeps it in a configuration; None for a type that it can't compare, or without values."""
    classes = _classes(spark)
    schema = column._jdf.schema()
    message = classes.schemas(spark._jsparkSession.sessionState().conf()).convert(schema)
    filters = classes.filters(message, True, True, True, True, FEW_KEYS + 1, True, classes.calendar)
    # Spark's filters take a name with dots for a path, unless it is quoted.
    name = schema.apply(0).name()
    name = identifier(name) if "." in name else name
    parts = []
    for at in range(0, values.size(), _AT_ONCE):
        some = values.subList(at, min(at + _AT_ONCE, values.size())).toArray()
        made = filters.createFilter(classes.one_of(name, some))
        if made.isEmpty():
            return None
        parts.append(made.get())
    while len(parts) > 1:
        pairs = [classes.either(*parts[i : i + 2]) for i in range(0, len(parts) - 1, 2)]
        parts = pairs + parts[len(pairs) * 2 :]
    if not parts:
        return None
    kept = classes.configuration(False)
    classes.input.setFilterPredicate(kept, parts[0])
    return str(kept.get(_FILTER))


def _with_options(spark: SparkSession, rows: DataFrame, options: dict[str, str]) -> DataFrame:
    """The same scan, whose readers are told `options`."""
    scan = rows._jdf.queryExecution().analyzed()
    relation = scan.relation()
    told = relation.options()
    for key, value in options.items():
        told = told.updated(key, value)
    classes = _classes(spark)
    new = relation.copy(
        relation.location(),
        relation.partitionSchema(),
        relation.dataSchema(),
        relation.bucketSpec(),
        relation.fileFormat(),
        told,
        classes.session,
    )
    plan = scan.copy(new, scan.output(), scan.catalogTable(), scan.isStreaming(), scan.stream())
    return file_index.frame_of(spark, plan)
