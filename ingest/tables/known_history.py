"""What is known of histories up to a batch: found once, and kept, so that nobody reads a history for it again.

A row per reader and kind, which says up to which batch something is known, and what. Batches before it never change but
for events that an erasure empties, so what is kept stays right, whoever dies. What is not kept, or was found under
other settings, is found again. It holds names of topics and tables, positions and numbers of batches, and nothing out
of a key or a value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.tables import delta_log
from ingest.tables.contention import again
from ingest.tables.ready_rows import ready_rows

_SCHEMA = T.StructType(
    [
        T.StructField("reader", T.StringType()),
        T.StructField("kind", T.StringType()),
        T.StructField("basis", T.StringType()),
        T.StructField("upto_batch", T.LongType()),
        T.StructField("known", T.StringType()),
    ]
)
_FILE = "_file"


@dataclass(frozen=True)
class Known:
    """`what` is known up to the batch `upto`."""

    upto: int
    what: Mapping[str, Any]


class KnownHistory:
    """Of the histories of a lakehouse."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._table = delta_log.Table(spark, path)

    def known(self, reader: str, kind: str, basis: str) -> Known | None:
        """Returns what is kept for a reader; None where nothing is, or it was found on another `basis`."""
        if not self._table.exists():
            return None
        self._table.version()  # Another process may have kept more.
        found = [row for row in self._rows(reader, kind).collect() if row["basis"] == basis]  # one row
        newest = max(found, key=lambda row: row["upto_batch"], default=None)
        return None if newest is None else Known(newest["upto_batch"], json.loads(newest["known"]))

    def keep(self, reader: str, kind: str, basis: str, known: Known) -> None:
        """Replaces what was kept of that kind for a reader."""
        if not self._table.exists():
            self._table.create(_SCHEMA, delta_log.NO_STATISTICS)
        row = {"reader": reader, "kind": kind, "basis": basis, "upto_batch": known.upto}
        row["known"] = json.dumps(known.what, ensure_ascii=False)
        again()(self._replace, row)

    def _replace(self, row: Mapping[str, Any]) -> None:
        self._table.version()
        names = {r[_FILE] for r in self._rows(str(row["reader"]), str(row["kind"])).select(_FILE).collect()}
        # Each file has one row.
        ready = ready_rows(self._spark, self._table.path, [row], _SCHEMA)
        self._table.commit(None, without=self._table.named(names), ready=[ready])

    def _rows(self, reader: str, kind: str) -> DataFrame:
        rows = self._table.rows_in(self._table.files().values())
        mine = rows.where((F.col("reader") == reader) & (F.col("kind") == kind))
        return mine.select("*", F.col("_metadata.file_name").alias(_FILE))
