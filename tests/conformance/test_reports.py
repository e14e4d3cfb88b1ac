"""Changelogs after public problem reports, folded in one batch and record by record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ingest.run.replay import Case, Delivery, replay
from tests.conformance.reading import bag, rows_of
from tests.conformance.test_cases import FOLDER

REPORTS = ("incremental-snapshot-without-lsn",)
"""Those that fold to what `expected.json` says."""
THERE = [name for name in REPORTS if (FOLDER / "reports" / name).is_dir()]
pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not THERE, reason=f"the reports are not at {FOLDER}"),
]
DELIVERIES = {"one batch": Delivery(), "one record a batch": Delivery(batch_size=1)}
Folded = dict[str, tuple[Path, dict[str, Any]]]


@pytest.fixture(scope="module", params=DELIVERIES)
def folded(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Folded:
    root = tmp_path_factory.mktemp("reports")
    cases = []
    for name in THERE:
        told = FOLDER / "reports" / name
        cases.append(Case(name, (told / "events.jsonl",), told / "tables.json", root / name))
    found = replay(spark, cases, DELIVERIES[request.param], "jsonl")
    return {case.name: (case.out, summary) for case, summary in found}


@pytest.mark.parametrize("name", THERE)
def test_report_folds_to_what_is_right(name: str, folded: Folded) -> None:
    out, summary = folded[name]
    expected = json.loads((FOLDER / "reports" / name / "expected.json").read_text(encoding="utf-8"))["tables"]
    assert summary["tables"].keys() == expected.keys()
    for table, right in expected.items():
        rows = rows_of(out / summary["tables"][table]["file"])
        assert bag(rows, right["columns"]) == bag(right["rows"], right["columns"])
