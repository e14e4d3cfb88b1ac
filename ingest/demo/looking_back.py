"""Compares silver as of a position in the middle of the log with the oracle's fold of the same records."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.backfill.recomputing import committed_by, recompute_tables
from ingest.changelog.envelope import CHANGES
from ingest.changelog.point import Point
from ingest.config import Pipeline
from ingest.lakehouse.silver import Silver
from ingest.names import Lakehouse
from ingest.pipeline.composition import bronze_of
from ingest.testing import Event, fold

_COMPARED_COLUMN = "revision"
"""The column that every change of the demonstration raises."""

Rows = dict[Any, dict[str, Any]]
"""id → compared columns. The demo's tables are small enough for memory."""


@dataclass(frozen=True)
class LookBack:
    """The result. `rows`: the number of rows of all tables as of `position`. `equal`: True if they equal the fold's."""

    position: int
    rows: int
    equal: bool

    @property
    def sentence(self) -> str:
        """The result as a sentence."""
        then = "equals" if self.equal else "DIFFERS from"
        return f"as of position {self.position}: silver with {self.rows} rows {then} a fold in memory"


def look_back(spark: SparkSession, pipeline: Pipeline, into: Lakehouse) -> LookBack:
    """Folds bronze again up to the middle position into the empty lakehouse `into`, and compares the tables."""
    bronze = bronze_of(spark, pipeline).rows()
    position = _middle(bronze)
    entries = recompute_tables(spark, pipeline, into, event_filter=partial(committed_by, Point(major=position)))
    found = {e.table_schema.table: _rows(Silver(spark, e.path).rows()) for e in entries}
    return LookBack(position, sum(map(len, found.values())), found == _folded(bronze, position))


def _middle(bronze: DataFrame) -> int:
    """Returns the median commit LSN of the streamed transactions."""
    streamed = bronze.where((F.col("op") != "r") & F.col("progress").isNotNull())
    row = streamed.agg(F.percentile_approx("progress.major", 0.5).alias("middle")).first()
    assert row is not None
    return int(row["middle"])


def _rows(silver: DataFrame) -> Rows:
    # collects the demo's few rows
    return {
        row["id"]: {_COMPARED_COLUMN: row[_COMPARED_COLUMN]} for row in silver.select("id", _COMPARED_COLUMN).collect()
    }


def _folded(bronze: DataFrame, position: int) -> dict[str, Rows]:
    """Returns table → its rows, by the oracle, from the raw records committed up to `position`."""
    events_by_table: dict[str, list[Event]] = {}
    changes = bronze.where(F.col("op").isin(*CHANGES)).select("source_table", "offset", "value")
    for row in changes.toLocalIterator():  # the demo's own changes
        envelope = json.loads(row["value"])
        envelope = envelope.get("payload", envelope)
        if _committed(envelope, position):
            events_by_table.setdefault(row["source_table"], []).append(_event(envelope, row["offset"]))
    return {table: dict(fold(events, [_COMPARED_COLUMN])) for table, events in events_by_table.items()}


def _committed(envelope: Mapping[str, Any], position: int) -> bool:
    """Returns True if the change was committed up to `position`. `source.sequence` begins with the LSN of the last
    commit before the change's own transaction."""
    if envelope["op"] == "r":
        return bool(envelope["source"]["lsn"] <= position)
    before: Sequence[str | None] = json.loads(envelope["source"]["sequence"])
    return int(before[0] or 0) < position


def _event(envelope: Mapping[str, Any], offset: int) -> Event:
    after, before = envelope["after"], envelope["before"]
    key = (after or before)["id"]
    image = {} if after is None else {_COMPARED_COLUMN: after[_COMPARED_COLUMN]}
    return Event(envelope["op"], offset, envelope["source"]["lsn"], key, image)
