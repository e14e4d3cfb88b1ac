"""Digests of a table's rows: equal for equal content, independent of files, the order of rows and batches.

Each row becomes the JSON text of its columns, sorted by name, without nulls (an empty column is no content). Its
SHA-256 is cut into four numbers, each of which is summed over the rows. Sums don't depend on order, and unlike XOR two
equal rows don't cancel out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.changelog.change import quoted
from ingest.values.render import rendered
from ingest.values.types import LogicalType

_PARTS = 4
_HEX_DIGITS = 15  # of each part: what a positive bigint holds
_MODULUS = 10**37


@dataclass(frozen=True)
class Digest:
    """`rows`: the number of rows. `digest`: of their content, in hexadecimal."""

    rows: int
    digest: str


def digest_of(rows: DataFrame, columns: Mapping[str, LogicalType]) -> Digest:
    """Returns the digest of `rows` over `columns` (name → logical type). One Spark job."""
    values = [rendered(quoted(name), columns[name]).alias(name) for name in sorted(columns)]
    text = F.to_json(F.struct(*values))
    hashed = rows.select(F.sha2(text, 256).alias("hash"))
    parts = [
        F.conv(F.substring("hash", 1 + n * _HEX_DIGITS, _HEX_DIGITS), 16, 10).cast("decimal(20,0)")
        for n in range(_PARTS)
    ]
    sums = [F.coalesce(F.sum(part), F.lit(0)).alias(f"part_{n}") for n, part in enumerate(parts)]
    found = hashed.agg(F.count(F.lit(1)).alias("rows"), *sums).first()
    assert found is not None
    text_of_sums = "".join(f"{int(found[f'part_{n}']) % _MODULUS:032x}" for n in range(_PARTS))
    return Digest(found["rows"], f"{found['rows']:x}-{text_of_sums}")
