"""The plans of small batches are made for the first batches and reused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ingest.batches.rules import DEFAULT_PLACEHOLDER, Rules
from ingest.jvm.prepared_plans import RowPlan, ScanPlan
from ingest.lakehouse.bronze import Bronze
from ingest.loop.capture import Capture
from ingest.loop.merge import Merge
from ingest.names import Lakehouse
from ingest.sources.files import FileSource, lines
from ingest.spark import prepared
from ingest.testing.changelogs import COLUMNS, as_debezium
from ingest.testing.notation import parse_events

pytestmark = pytest.mark.spark
_PIPELINE = "planned"
_FIRST = "c1@10(x,3,long) c2@20(y,4,long) u1@30(z,3,long) d1@40 c3@50(x,1,long) u2@60(x,5,long) d2@70"
"""One change of each kind before the first tombstone, and one after."""
_MORE = "c4@80(x,1,long) u3@90(w,1,long) d3@100 c5@110(q,1,long) u4@120(q,1,long) d4@130"


@pytest.mark.long
def test_later_small_batches_reuse_plans(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[tuple[str, bool]]()

    class CountedPlan(RowPlan):
        def __init__(self, spark: SparkSession, query: prepared.Query, *of: Any) -> None:
            super().__init__(spark, query, *of)
            made.append((query.__name__, self.repeats))

    class CountedScan(ScanPlan):
        def __init__(self, query: prepared.Query, *of: Any) -> None:
            super().__init__(query, *of)
            made.append((query.__name__, self.repeats))

    monkeypatch.setattr(prepared, "RowPlan", CountedPlan)
    monkeypatch.setattr(prepared, "ScanPlan", CountedScan)
    prepared._plan.cache_clear()  # Tables with the same columns share plans: those of other tests.
    file = tmp_path / "events.jsonl"
    changes = parse_events(f"{_FIRST} {_MORE}", COLUMNS)
    records = as_debezium(changes, "f.planned", 0, DEFAULT_PLACEHOLDER)
    file.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    bronze = Bronze(spark, Lakehouse(str(tmp_path / "lakehouse")).bronze(_PIPELINE))
    capture = Capture(spark, FileSource(list(lines([file]))), bronze, Rules().naming, 1)
    while capture.step():
        pass
    merge = Merge(spark, _PIPELINE, Lakehouse(str(tmp_path / "lakehouse")), Rules(), bronze, slice_events=1)
    for _ in parse_events(_FIRST, COLUMNS):
        assert [a.applied for a in merge.step()] == [1]
    assert {name for name, _ in made} >= {
        "_states",
        "_with_row_actions",
        "_in_json",
        "_silver_rows",
        "_new",
        "new_rows",
    }
    assert {name for name, _ in made} >= {"_of_prepared", "_unchanged"}
    assert [name for name, repeats in made if not repeats] == []
    planned = len(made)
    for _ in parse_events(_MORE, COLUMNS):
        assert [a.applied for a in merge.step()] == [1]
    assert made[planned:] == []
