"""Reads the lakehouse for the demo: row counts, one claim's row, the lag of streamed events.

It uses delta-rs instead of Spark, so that reads don't delay the pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import DataFrame, SparkSession

from ingest.changelog.accounting import COUNTS
from ingest.config import Pipeline
from ingest.lakehouse.silver import Silver

_STREAMED = ["c", "u", "d"]


@dataclass(frozen=True)
class LagPercentiles:
    """Percentiles of the seconds from a change's commit in the source to its commit in silver."""

    p50: float
    p95: float


class LakehouseView:
    """The tables of one pipeline; every call reads the newest version."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline) -> None:
        self._spark = spark
        self._pipeline = pipeline

    def silver(self, table: str) -> DataFrame:
        """Returns the rows of `schema.table`."""
        return Silver(self._spark, self._path(table)).rows()

    def count(self, table: str) -> int:
        """Returns the number of rows of `schema.table`; 0 if there is no table yet."""
        return _count(self._path(table), "true")

    def row(self, table: str, number: int) -> Mapping[str, Any] | None:
        """Returns the row with this id; None if there is no such row, or no table yet."""
        found: list[dict[str, Any]] = _read(self._path(table), "*", f"id = {number:d}").to_pylist()
        return found[0] if found else None

    def events(self, table: str | None = None, op: str | None = None) -> int:
        """Returns the number of records in bronze, optionally of one table or one op."""
        wanted = {"source_table": table, "op": op}
        return _count(self._bronze, " AND ".join(_is(c, v) for c, v in wanted.items() if v is not None) or "true")

    def accounted(self) -> dict[str, int]:
        """Returns outcome → number of events, over all accounts."""
        accounts = self._accounts(", ".join(COUNTS))
        return {c: pc.sum(accounts[c]).as_py() or 0 for c in COUNTS} if accounts.num_rows else {}

    def last_batch(self) -> int:
        """Returns the number of the last merged batch; 0 before the first."""
        ends = self._accounts("upto_batch")
        return pc.max(ends["upto_batch"]).as_py() or 0 if ends.num_rows else 0

    def lag(self, after: int = 0) -> LagPercentiles | None:
        """Returns the lag of all streamed changes, without snapshot reads, in batches after `after`; None if there are
        none."""
        slices = self._accounts("upto_batch, committed_at")
        streamed = " OR ".join(_is("op", op) for op in _STREAMED)
        changes = _read(self._bronze, "batch, source_ts", f"batch > {after:d} AND ({streamed})")
        if not slices.num_rows or not changes.num_rows:
            return None
        ends = slices.to_pandas().drop_duplicates().sort_values("upto_batch")
        begins = changes.to_pandas().sort_values("batch")
        merged = pd.merge_asof(begins, ends, left_on="batch", right_on="upto_batch", direction="forward").dropna()
        if merged.empty:
            return None
        seconds = (merged["committed_at"] - merged["source_ts"]).dt.total_seconds()
        return LagPercentiles(*(round(float(s), 3) for s in seconds.quantile([0.5, 0.95])))

    @property
    def _bronze(self) -> str:
        return self._pipeline.layout.bronze(self._pipeline.name)

    def _path(self, table: str) -> str:
        return self._pipeline.layout.silver(self._pipeline.name, table)

    def _accounts(self, columns: str) -> pa.Table:
        return _read(self._pipeline.layout.accounts, columns, _is("pipeline", self._pipeline.name))


def _read(path: str, columns: str, chosen: str) -> pa.Table:
    """Returns `columns` of the rows that match `chosen`; an empty table without columns if there is no table yet."""
    if not DeltaTable.is_deltatable(path):
        return pa.table({})
    # deltalake refuses to_pyarrow for tables with deletion vectors; QueryBuilder applies them.
    query = QueryBuilder().register("found", DeltaTable(path))
    return pa.table(query.execute(f"SELECT {columns} FROM found WHERE {chosen}").read_all())


def _count(path: str, chosen: str) -> int:
    found = _read(path, "count(*) AS n", chosen)
    return int(found["n"][0].as_py()) if found.num_rows else 0


def _is(column: str, value: str) -> str:
    text = value.replace("'", "''")
    return f"{column} = '{text}'"
