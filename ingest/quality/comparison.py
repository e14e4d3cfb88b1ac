"""Compares two tables by key: counts missing, extra, changed and repeated rows.

The result counts rows and names columns; it never holds a value.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import and_
from pathlib import Path

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from ingest.quality.normal_forms import normalised_columns
from ingest.quality.postgres import export
from ingest.values.types import OutOfRange


@dataclass(frozen=True)
class Comparison:
    """`missing`: keys that only the source has. `extra`: keys that only silver has. `changed`: keys with different
    content. `repeated`: keys that one of the tables has more than once. `columns`: name → changed keys that differ in
    it. `mistyped`: columns that silver lacks, or stores as a type that can't hold the source's values."""

    table: str
    source_rows: int
    silver_rows: int
    missing: int = 0
    extra: int = 0
    changed: int = 0
    repeated: int = 0
    columns: Mapping[str, int] = field(default_factory=dict)
    mistyped: tuple[str, ...] = ()

    @property
    def differing(self) -> int:
        """Returns the number of keys that differ."""
        return self.missing + self.extra + self.changed + self.repeated

    @property
    def equal(self) -> bool:
        """Returns True if both hold the same rows, each once, with equal values in every column of the source."""
        return self.differing == 0 and not self.mistyped and self.source_rows == self.silver_rows


def compare_with_postgres(
    spark: SparkSession,
    dsn: str,
    table: str,
    silver: DataFrame,
    folder: Path | None = None,
    times: OutOfRange = OutOfRange.CLAMP,
) -> Comparison:
    """Compares every column of every row of a Postgres table (`schema.table`) with silver. `times`: the pipeline's
    `times_out_of_range`.

    Columns that only silver has (its own begin with `_`; others were dropped from the source) are ignored. The source
    is read in one snapshot, in chunks, into a file below `folder`, which Spark's executors must be able to read; a
    temporary folder of this machine if None. Needs a session in UTC.

    Raises ConfigError for a table without a primary key or with a type that can't be compared exactly, and Unreachable
    if the database does not answer.
    """
    with tempfile.TemporaryDirectory(prefix="compared-", dir=folder) as temporary:
        file = Path(temporary) / "source.parquet"
        source = export(dsn, table, file, times=times)
        names = [column.name for column in source.columns]
        stored = {f.name: f.dataType for f in silver.schema.fields}
        mistyped = tuple(c.name for c in source.columns if c.name not in stored or not c.form.takes(stored[c.name]))
        rows = spark.read.parquet(str(file)).toDF(*names)
        ours = silver.select(*normalised_columns(silver.schema, source.columns))
        return compare(table, rows, ours, source.key, mistyped)


def compare(
    table: str, source: DataFrame, silver: DataFrame, key: Sequence[str], mistyped: Sequence[str] = ()
) -> Comparison:
    """Compares frames with the same columns by `key`. One shuffle of both, and one row to the driver."""
    names = source.columns
    positions = [names.index(name) for name in key]
    # Plain names: a column may have any name, also `side`.
    plain = [f"c{i}" for i in range(len(names))]
    both = _with_side(source, plain, 0).unionByName(_with_side(silver, plain, 1))
    lowest_and_highest = [
        aggregate
        for c in plain
        # min and max ignore nulls, but not structs that hold a null.
        for aggregate in (F.min(F.struct(c)).alias(f"{c}_low"), F.max(F.struct(c)).alias(f"{c}_high"))
    ]
    counts = [F.count_if(F.col("side") == side).alias(name) for side, name in ((0, "left"), (1, "right"))]
    by_key = both.groupBy(*(F.col(plain[i]).alias(f"k{i}") for i in positions)).agg(*counts, *lowest_and_highest)
    compared = [c for name, c in zip(names, plain, strict=True) if name not in mistyped]
    row = by_key.agg(*_sums(compared)).first()
    if row is None:
        raise AssertionError("an aggregate without groups returns one row")
    return _to_comparison(table, row, dict(zip(plain, names, strict=True)), mistyped)


def _with_side(frame: DataFrame, plain: Sequence[str], side: int) -> DataFrame:
    return frame.toDF(*plain).withColumn("side", F.lit(side))


def _sums(compared: Sequence[str]) -> list[Column]:
    once = (F.col("left") == 1) & (F.col("right") == 1)
    is_same = {c: F.col(f"{c}_low").eqNullSafe(F.col(f"{c}_high")) for c in compared}
    all_same = reduce(and_, is_same.values(), F.lit(True))
    counted = {
        "missing": (F.col("left") > 0) & (F.col("right") == 0),
        "extra": (F.col("left") == 0) & (F.col("right") > 0),
        "repeated": (F.col("left") > 0) & (F.col("right") > 0) & ~once,
        "changed": once & ~all_same,
        **{c: once & ~is_same[c] for c in compared},
    }
    totals = [F.coalesce(F.sum(side), F.lit(0)).alias(side) for side in ("left", "right")]
    return [*totals, *(F.count_if(condition).alias(name) for name, condition in counted.items())]


def _to_comparison(table: str, row: Row, names: Mapping[str, str], mistyped: Sequence[str]) -> Comparison:
    counts: dict[str, int] = row.asDict()
    return Comparison(
        table,
        source_rows=counts["left"],
        silver_rows=counts["right"],
        missing=counts["missing"],
        extra=counts["extra"],
        changed=counts["changed"],
        repeated=counts["repeated"],
        columns={name: counts[c] for c, name in names.items() if counts.get(c)},
        mistyped=tuple(mistyped),
    )
