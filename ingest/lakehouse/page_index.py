"""Reads the rows of a few keys out of large files, by Parquet's column index: it has the bounds of each page, and
readers skip the pages outside of a filter. A file sorted by key has few pages that may hold a key.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest.changelog.change import quoted
from ingest.delta import file_index
from ingest.delta.data_file import DataFile
from ingest.delta.delta_table import Table
from ingest.jvm.page_filter import CollectedValues, with_page_filter
from ingest.jvm.projection import Projection
from ingest.merge.key_join import joined_by_key
from ingest.spark.checkpoints import checkpoint
from ingest.spark.prepared import Query

_ROWS_OF_A_PARTITION = (1 << 33) - 1
"""The part of Spark's increasing ids that numbers the rows of a partition."""


def matching(
    table: Table,
    key: Sequence[str],
    wanted: DataFrame,
    with_columns: Sequence[str] = (),
    are_few: bool = False,
    files: Sequence[DataFile] | None = None,
    located: bool = False,
    stored: Mapping[str, str] | None = None,
) -> tuple[DataFrame, bool]:
    """Returns the rows of `table` whose `key` is in `wanted`, and True if `wanted` was found to have at most
    `page_lookup_keys` rows.

    `with_columns`: columns of `wanted` to join to them; a row is then returned once for each of its keys in `wanted`.
    `are_few`: `wanted` is known to have at most `page_lookup_keys` rows. `files`: those that hold the rows. `located`:
    with `LOCATION`. `stored`: column → its other name in the table. The table is not shuffled, and is read once: only
    the columns that are used, and of a large table only the pages that may hold one of a few keys."""
    searched = list(table.files().values()) if files is None else files
    keys = wanted.select(*map(quoted, (*key, *with_columns)))
    stored = stored or {}
    # Keep the join: Parquet evaluates a pushed filter on an unprojected column as null.
    rows, found_few = _scan(table, key[0], wanted, searched, stored.get(key[0]))
    rows = _renamed(rows, stored)
    if with_columns and are_few and sum(f.size for f in searched) <= table.tuning.one_task_scan_bytes:
        # With one partition on each side the join needs no broadcast.
        rows, keys = rows.coalesce(1), keys.coalesce(1).hint("shuffle_hash")
    else:
        keys = F.broadcast(keys)
    found = file_index.located(rows) if located else rows
    return joined_by_key(found, keys, key, "inner" if with_columns else "left_semi"), found_few


def near(
    table: Table,
    key: Sequence[str],
    wanted: DataFrame,
    query: Query,
    by: tuple[Hashable, ...] = (),
    located: bool = False,
    stored: Mapping[str, str] | None = None,
) -> DataFrame:
    """Returns `query(*by, rows)` of rows of `table`, among them all whose `key` is in `wanted`, which are few. The
    query must work row by row. For a small table `rows` are all its rows; in a larger one the matching rows are looked
    up first. `located` and `stored`: as of `matching`."""
    files = list(table.files().values())
    if sum(f.size for f in files) <= table.tuning.one_task_scan_bytes:
        if located or stored:
            query, by = _of_prepared, (query, located, tuple((stored or {}).items()), *by)
        return table.run_prepared(files, query, by)
    found, _ = matching(table, key, wanted, located=located, stored=stored)
    return checkpoint(query(*by, found), eager=True)


def _of_prepared(query: Query, located: bool, stored: Sequence[tuple[str, str]], *of: Any) -> DataFrame:
    """Returns `query(*by, rows)` for `of`: `by` and rows of the table as stored."""
    *by, rows = of
    renamed = _renamed(rows, dict(stored))
    return query(*by, file_index.located(renamed) if located else renamed)


def _renamed(rows: DataFrame, stored: Mapping[str, str]) -> DataFrame:
    return rows.withColumnsRenamed({in_table: name for name, in_table in stored.items()}) if stored else rows


def _scan(
    table: Table, column: str, wanted: DataFrame, files: Sequence[DataFile], stored: str | None = None
) -> tuple[DataFrame, bool]:
    """Returns rows among which are all wanted ones, and True if the wanted ones were found to be few. `stored`: the
    name of `column` in the table, if it is another one there."""
    rows = table.rows_in(files)
    if sum(f.size for f in files) <= table.tuning.full_scan_bytes:
        return rows, False
    most_keys = table.tuning.page_lookup_keys
    keyed, summary = _key_summary(column, most_keys)
    found = CollectedValues(keyed.of(wanted).agg(*summary))
    if found.rows > most_keys or found.nulls:
        return rows, False
    name = stored or column
    in_files = rows.select(quoted(name).alias(table.physical_name(name)))
    return with_page_filter(rows, in_files, found), True


@lru_cache(maxsize=512)
def _key_summary(column: str, most_keys: int) -> tuple[Projection, tuple[Column, Column, Column]]:
    """Returns a projection to each row's key and whether it is one of the first rows of its partition, and aggregates
    of it: the distinct keys of those first rows, the number of rows with a key, and of rows with a null."""
    # Not `limit`: Spark numbers its limits in the generated code, which it would compile anew each time.
    place = F.monotonically_increasing_id().bitwiseAND(_ROWS_OF_A_PARTITION)
    keyed = Projection((quoted(column).alias("key"), (place <= most_keys).alias("early")))
    keys = F.sort_array(F.collect_set(F.when(F.col("early"), F.col("key"))))
    nulls = F.count_if(F.col("key").isNull()).alias("nulls")
    return keyed, (keys.alias("keys"), F.count("key").alias("rows"), nulls)
