"""Silver as it was at a position in the middle of the log, held against a fold in memory."""

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

_TOLD = "revision"
"""The column that every change of the demonstration raises."""

Rows = dict[Any, dict[str, Any]]
"""id → what is compared. A demonstration's tables are small."""


@dataclass(frozen=True)
class LookBack:
    """`rows`: of all tables at `position`. `equal`: whether they are what the fold in memory says."""

    position: int
    rows: int
    equal: bool

    @property
    def sentence(self) -> str:
        """For people."""
        then = "equals" if self.equal else "DIFFERS from"
        return f"as of position {self.position}: silver with {self.rows} rows {then} a fold in memory"


def look_back(spark: SparkSession, pipeline: Pipeline, into: Lakehouse) -> LookBack:
    """`into`: an empty place for the tables."""
    bronze = bronze_of(spark, pipeline).rows()
    position = _middle(bronze)
    entries = recompute_tables(spark, pipeline, into, event_filter=partial(committed_by, Point(major=position)))
    found = {e.table_schema.table: _rows(Silver(spark, e.path).rows()) for e in entries}
    return LookBack(position, sum(map(len, found.values())), found == _folded(bronze, position))


def _middle(bronze: DataFrame) -> int:
    """The commit of a transaction in the middle of what was streamed."""
    streamed = bronze.where((F.col("op") != "r") & F.col("progress").isNotNull())
    row = streamed.agg(F.percentile_approx("progress.major", 0.5).alias("middle")).first()
    assert row is not None
    return int(row["middle"])


def _rows(silver: DataFrame) -> Rows:
    # The demo's own rows.
    return {row["id"]: {_TOLD: row[_TOLD]} for row in silver.select("id", _TOLD).collect()}


def _folded(bronze: DataFrame, position: int) -> dict[str, Rows]:
    """table → its rows, by the naive reference, out of the records as they came."""
    said: dict[str, list[Event]] = {}
    changes = bronze.where(F.col("op").isin(*CHANGES)).select("source_table", "offset", "value")
    for row in changes.toLocalIterator():  # the demo's own changes
        envelope = json.loads(row["value"])
        envelope = envelope.get("payload", envelope)
        if _committed(envelope, position):
            said.setdefault(row["source_table"], []).append(_event(envelope, row["offset"]))
    return {table: dict(fold(events, [_TOLD])) for table, events in said.items()}


def _committed(envelope: Mapping[str, Any], position: int) -> bool:
    """Postgres tells of each change which transaction was committed before its own."""
    if envelope["op"] == "r":
        return bool(envelope["source"]["lsn"] <= position)
    before: Sequence[str | None] = json.loads(envelope["source"]["sequence"])
    return int(before[0] or 0) < position


def _event(envelope: Mapping[str, Any], offset: int) -> Event:
    after, before = envelope["after"], envelope["before"]
    key = (after or before)["id"]
    image = {} if after is None else {_TOLD: after[_TOLD]}
    return Event(envelope["op"], offset, envelope["source"]["lsn"], key, image)
