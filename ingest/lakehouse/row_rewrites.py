"""Removes or overwrites rows for good. The files that hold them are rewritten, in commits without entries in the change
data feed; `delta.vacuum.remove_old_files` then deletes the old files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest.changelog.change import quoted
from ingest.delta.classes import Operation
from ingest.delta.conflict_retry import retry_on_conflict
from ingest.delta.data_file import DataFile
from ingest.delta.delta_table import Table

_FILE = "_ingest_file"

Layout = Callable[[DataFrame, int], DataFrame]
"""Lays rows out for a number of files."""


def remove_rows(table: Table, removed: DataFrame, on: Sequence[str], layout: Layout) -> int:
    """Removes the rows that equal one of `removed` in the columns `on`. Returns the number of rewritten files."""

    def rewritten(rows: DataFrame) -> DataFrame:
        return rows.join(F.broadcast(removed.select(*on)), list(on), "left_anti")

    files: int = retry_on_conflict()(_rewrite, table, removed, on, rewritten, layout)
    return files


def update_rows(
    table: Table,
    places: DataFrame,
    on: Sequence[str],
    values: Mapping[str, Column],
    layout: Layout,
    may_hold: Callable[[DataFile], bool] = lambda _: True,
) -> int:
    """Sets `values` (column → value) in the rows that equal one of `places` in the columns `on`. A value may use the
    other columns of `places`, as `_` + name. `may_hold`: returns False for a file that has no such row. Returns the
    number of rewritten files."""

    def rewritten(rows: DataFrame) -> DataFrame:
        named = (F.col(c) if c in on else F.col(c).alias(f"_{c}") for c in places.columns)
        joined = rows.join(
            F.broadcast(places.select(*named, F.lit(True).alias("_ingest_is_changed"))), list(on), "left"
        )
        changed = {
            name: F.when(F.col("_ingest_is_changed"), value).otherwise(F.col(name)) for name, value in values.items()
        }
        return joined.withColumns(changed).select(*map(quoted, rows.columns))

    files: int = retry_on_conflict()(_rewrite, table, places, on, rewritten, layout, may_hold)
    return files


def _rewrite(
    table: Table,
    wanted: DataFrame,
    on: Sequence[str],
    rewritten: Callable[[DataFrame], DataFrame],
    layout: Layout,
    may_hold: Callable[[DataFile], bool] = lambda _: True,
) -> int:
    files = _files_with(table, wanted, on, may_hold)
    if files:
        table.rewrite(files, layout(rewritten(table.rows_in(files)), len(files)), Operation.DELETE)
    return len(files)


def _files_with(
    table: Table, wanted: DataFrame, on: Sequence[str], may_hold: Callable[[DataFile], bool]
) -> list[DataFile]:
    """Returns the files that hold a row that equals one of `wanted` in the columns `on`."""
    live = {name: f for name, f in table.files().items() if may_hold(f)} if table.exists() else {}
    if not live:
        return []
    rows = table.rows_in(live.values()).select(*on, F.col("_metadata.file_name").alias(_FILE))
    found = rows.join(F.broadcast(wanted.select(*on)), list(on), "left_semi").select(_FILE).distinct()
    return [live[row[_FILE]] for row in found.collect()]  # a row per file
