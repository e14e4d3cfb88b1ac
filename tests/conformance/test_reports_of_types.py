"""Changelogs from public problem reports on types and nulls in keys, merged in one batch and record by record."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ingest.backfill.replay import Case, Delivery, replay
from tests.conformance.reading import multiset, rows_of

FOLDER = Path(os.environ.get("INGEST_CONFORMANCE", Path(__file__).parents[3] / "shared" / "conformance")) / "reports"
REPORTS = ["schemaless-null-then-array", "schemaless-exact-number-then-fraction", "null-in-a-composite-key"]
pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not FOLDER.is_dir(), reason=f"the reports are not at {FOLDER}"),
]


@pytest.mark.parametrize("size", [0, pytest.param(1, marks=pytest.mark.long)])
def test_reports_give_the_expected_values(spark: SparkSession, tmp_path: Path, size: int) -> None:
    cases = [Case(n, (FOLDER / n / "events.jsonl",), FOLDER / n / "tables.json", tmp_path / n) for n in REPORTS]
    for case, summary in replay(spark, cases, Delivery(size), "jsonl"):
        expected = json.loads((FOLDER / case.name / "expected.json").read_text(encoding="utf-8"))
        assert summary["quarantine"] == [], case.name
        for table, right in expected["tables"].items():
            rows = rows_of(case.out / summary["tables"][table]["file"])
            assert multiset(rows, right["columns"]) == multiset(right["rows"], right["columns"]), (case.name, table)
