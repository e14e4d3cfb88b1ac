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
    """`what` is known up to the batch `upto`."""

    through_batch: int
    facts: Mapping[str, Any]


class HistoryFacts:
    """Of the histories of a lakehouse."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._table = delta_table.Table(spark, path)
        self._seen: dict[tuple[str, str], set[str]] = {}

    def load(self, reader: str, kind: str, basis: str) -> HistoryFact | None:
        """Returns what is kept for a reader; None where nothing is, or it was found on another `basis`."""
        if not self._table.exists():
            return None
        self._table.version()  # Another process may have kept more.
        rows = self._rows(reader, kind).collect()  # one row
        self._seen[reader, kind] = {row[_FILE] for row in rows}
        found = [row for row in rows if row["basis"] == basis]
        newest = max(found, key=lambda row: row["upto_batch"], default=None)
        return None if newest is None else HistoryFact(newest["upto_batch"], json.loads(newest["known"]))

    def store(self, reader: str, kind: str, basis: str, known: HistoryFact) -> None:
        """Replaces what was kept of that kind for a reader.

        Raises Contended where another run has replaced it since it was read here: what follows from both nobody
        knows."""
        if not self._table.exists():
            self._table.create(_SCHEMA, delta_table.NO_STATISTICS)
        row = {"reader": reader, "kind": kind, "basis": basis, "upto_batch": known.through_batch}
        row["known"] = json.dumps(known.facts, ensure_ascii=False)
        retry_on_conflict(DELTA_CONFLICTS)(self._replace, row)

    def _replace(self, row: Mapping[str, Any]) -> None:
        self._table.version()
        mine = str(row["reader"]), str(row["kind"])
        names = {r[_FILE] for r in self._rows(*mine).select(_FILE).collect()}  # one
        if names != self._seen.get(mine, set()):
            raise concurrent_commit(self._table.path)
        # Each file has one row.
        ready = write_ready_file(self._spark, self._table.path, [row], _SCHEMA)
        self._table.commit(None, removed_files=self._table.files_named(names), ready=[ready])
        self._seen[mine] = {ready.name}

    def _rows(self, reader: str, kind: str) -> DataFrame:
        rows = self._table.rows_in(self._table.files().values())
        mine = rows.where((F.col("reader") == reader) & (F.col("kind") == kind))
        return mine.select("*", F.col("_metadata.file_name").alias(_FILE))
