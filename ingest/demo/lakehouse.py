"""What the demonstration reads of the lakehouse: row counts, one claim's row, the lag of every streamed event.

It reads as any client would, without Spark: a look must not hold up the pipeline that it looks at.
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
class Lag:
    """Seconds from a change's commit in the source to the commit that brought it to silver."""

    p50: float
    p95: float


class LakehouseView:
    """One pipeline's tables, read anew at each call."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline) -> None:
        self._spark = spark
        self._pipeline = pipeline

    def silver(self, table: str) -> DataFrame:
        """The rows of `schema.table`."""
        return Silver(self._spark, self._path(table)).rows()

    def count(self, table: str) -> int:
        """The rows of `schema.table`; none where there is no table yet."""
        return _count(self._path(table), "true")

    def row(self, table: str, number: int) -> Mapping[str, Any] | None:
        """The row of this id; None where there is none, or no table yet."""
        found: list[dict[str, Any]] = _read(self._path(table), "*", f"id = {number:d}").to_pylist()
        return found[0] if found else None

    def events(self, table: str | None = None, op: str | None = None) -> int:
        """How many records bronze holds: of a table, of an op, or all."""
        wanted = {"source_table": table, "op": op}
        return _count(self._bronze, " AND ".join(_is(c, v) for c, v in wanted.items() if v is not None) or "true")

    def accounted(self) -> dict[str, int]:
        """What became of all events."""
        accounts = self._accounts(", ".join(COUNTS))
        return {c: pc.sum(accounts[c]).as_py() or 0 for c in COUNTS} if accounts.num_rows else {}

    def last_batch(self) -> int:
        """The number of the last batch that is merged; 0 before the first."""
        ends = self._accounts("upto_batch")
        return pc.max(ends["upto_batch"]).as_py() or 0 if ends.num_rows else 0

    def lag(self, after: int = 0) -> Lag | None:
        """Over every change that came by the stream and not by the snapshot, in a batch after `after`; None where
        there is none."""
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
        return Lag(*(round(float(s), 3) for s in seconds.quantile([0.5, 0.95])))

    @property
    def _bronze(self) -> str:
        return self._pipeline.layout.bronze(self._pipeline.name)

    def _path(self, table: str) -> str:
        return self._pipeline.layout.silver(self._pipeline.name, table)

    def _accounts(self, columns: str) -> pa.Table:
        return _read(self._pipeline.layout.accounts, columns, _is("pipeline", self._pipeline.name))


def _read(path: str, columns: str, chosen: str) -> pa.Table:
    """Of the table at `path`, as it is now; no rows and no columns where there is no table yet."""
    if not DeltaTable.is_deltatable(path):
        return pa.table({})
    # What deltalake gives to pyarrow directly leaves deletion vectors out of account, and so is refused.
    query = QueryBuilder().register("found", DeltaTable(path))
    return pa.table(query.execute(f"SELECT {columns} FROM found WHERE {chosen}").read_all())


def _count(path: str, chosen: str) -> int:
    found = _read(path, "count(*) AS n", chosen)
    return int(found["n"][0].as_py()) if found.num_rows else 0


def _is(column: str, value: str) -> str:
    text = value.replace("'", "''")
    return f"{column} = '{text}'"
