"""Facts about the history of bronze through a batch: computed once and stored, so that the history need not be read
again.

The table has a row per reader and kind: the last batch that the facts cover, and the facts. Earlier batches never
change except for events that an erasure empties, so stored facts stay true. Facts that are missing, or were computed
under other settings, are computed again. They hold names of topics and tables, positions and batch numbers, and nothing
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

from ingest.delta import delta_table
from ingest.delta.conflict_retry import DELTA_CONFLICTS, concurrent_commit, retry_on_conflict
from ingest.delta.ready_rows import write_ready_file

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
class HistoryFact:
    """Facts about the batches up to `through_batch`, as JSON has them."""

    through_batch: int
    facts: Mapping[str, Any]


class HistoryFacts:
    """The stored facts of a lakehouse."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._table = delta_table.Table(spark, path)
        self._loaded: dict[tuple[str, str], set[str]] = {}
        """(reader, kind) → names of the files from which they were loaded."""

    def load(self, reader: str, kind: str, basis: str) -> HistoryFact | None:
        """Returns the stored facts of a reader; None if there are none, or they have another `basis` (a digest of the
        settings under which they were computed)."""
        if not self._table.exists():
            return None
        self._table.version()  # Another process may have stored newer ones.
        rows = self._rows(reader, kind).collect()  # one row
        self._loaded[reader, kind] = {row[_FILE] for row in rows}
        same = [row for row in rows if row["basis"] == basis]
        newest = max(same, key=lambda row: row["upto_batch"], default=None)
        return None if newest is None else HistoryFact(newest["upto_batch"], json.loads(newest["known"]))

    def store(self, reader: str, kind: str, basis: str, fact: HistoryFact) -> None:
        """Replaces the stored facts of this kind of a reader.

        Raises Contended if another run has replaced them since they were loaded: the two can't be combined."""
        if not self._table.exists():
            self._table.create(_SCHEMA, delta_table.NO_STATISTICS)
        row = {"reader": reader, "kind": kind, "basis": basis, "upto_batch": fact.through_batch}
        row["known"] = json.dumps(fact.facts, ensure_ascii=False)
        retry_on_conflict(DELTA_CONFLICTS)(self._replace, row)

    def _replace(self, row: Mapping[str, Any]) -> None:
        self._table.version()
        key = str(row["reader"]), str(row["kind"])
        names = {r[_FILE] for r in self._rows(*key).select(_FILE).collect()}  # one
        if names != self._loaded.get(key, set()):
            raise concurrent_commit(self._table.path)
        # Each file has one row.
        ready = write_ready_file(self._spark, self._table.path, [row], _SCHEMA)
        self._table.commit(None, removed_files=self._table.files_named(names), ready=[ready])
        self._loaded[key] = {ready.name}

    def _rows(self, reader: str, kind: str) -> DataFrame:
        rows = self._table.rows_in(self._table.files().values())
        chosen = rows.where((F.col("reader") == reader) & (F.col("kind") == kind))
        return chosen.select("*", F.col("_metadata.file_name").alias(_FILE))
