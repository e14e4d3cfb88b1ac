"""Rows that go for good. Their files are written anew, in commits that change nothing for who follows the table; the
files that held them are old then, and go with `old_versions.files_removed`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ingest.changelog.change import quoted
from ingest.delta.conflict_retry import retry_on_conflict
from ingest.delta.data_file import DataFile
from ingest.delta.delta_table import Table

_FILE = "_ingest_file"

LaidOut = Callable[[DataFrame, int], DataFrame]
"""How rows are to lie in so many files."""


def remove_rows(table: Table, gone: DataFrame, on: Sequence[str], laid_out: LaidOut) -> int:
    """Takes away the rows that are like one of `gone` in the columns `on`. How many files that concerned."""

    def left(rows: DataFrame) -> DataFrame:
        return rows.join(F.broadcast(gone.select(*on)), list(on), "left_anti")

    written: int = retry_on_conflict()(_anew, table, gone, on, left, laid_out)
    return written


def update_rows(
    table: Table,
    places: DataFrame,
    on: Sequence[str],
    told: Mapping[str, Column],
    laid_out: LaidOut,
    may_hold: Callable[[DataFile], bool] = lambda _: True,
) -> int:
    """Puts `told` into the rows that are like one of `places` in the columns `on`, of which other columns may be used
    there. `may_hold`: whether a file has to be looked into. How many files that concerned."""

    def left(rows: DataFrame) -> DataFrame:
        marked = places.select(*(F.col(c) if c in on else F.col(c).alias(f"_{c}") for c in places.columns), _here())
        joined = rows.join(F.broadcast(marked), list(on), "left")
        changed = {name: F.when(F.col("_ingest_here"), value).otherwise(F.col(name)) for name, value in told.items()}
        return joined.withColumns(changed).select(*map(quoted, rows.columns))

    written: int = retry_on_conflict()(_anew, table, places, on, left, laid_out, may_hold)
    return written


def _here() -> Column:
    return F.lit(True).alias("_ingest_here")


def _anew(
    table: Table,
    wanted: DataFrame,
    on: Sequence[str],
    left: Callable[[DataFrame], DataFrame],
    laid_out: LaidOut,
    may_hold: Callable[[DataFile], bool] = lambda _: True,
) -> int:
    files = files_holding(table, wanted, on, may_hold)
    if files:
        table.rewrite(files, laid_out(left(table.rows_in(files)), len(files)))
    return len(files)


def files_holding(
    table: Table, wanted: DataFrame, on: Sequence[str], may_hold: Callable[[DataFile], bool] = lambda _: True
) -> list[DataFile]:
    """The files in which a row lies that is like one of `wanted` in the columns `on`, of those that `may_hold` one."""
    live = {name: f for name, f in table.files().items() if may_hold(f)} if table.exists() else {}
    if not live:
        return []
    there = table.rows_in(live.values()).select(*on, F.col("_metadata.file_name").alias(_FILE))
    found = there.join(F.broadcast(wanted.select(*on)), list(on), "left_semi").select(_FILE).distinct()
    return [live[row[_FILE]] for row in found.collect()]  # a row per file
