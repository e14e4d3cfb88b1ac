"""Changelogs from other systems' tests, merged in one batch and in small batches."""

from __future__ import annotations

import json
import os
from decimal import Decimal
from math import gcd
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ingest.backfill.replay import Case, Delivery, replay
from tests.conformance.reading import multiset, read, rows_of

FOLDER = Path(os.environ.get("INGEST_CONFORMANCE", Path(__file__).parents[3] / "shared" / "conformance"))
CASES = sorted((FOLDER / "cases").glob("*/")) if FOLDER.is_dir() else []
pytestmark = [
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.skipif(not CASES, reason=f"the conformance cases are not at {FOLDER}"),
]

DELIVERIES = {
    "one batch": Delivery(),
    # Not one record per batch, as in tests/merge: these cases are longer.
    "three records a batch": Delivery(batch_size=3),
}
Replayed = dict[str, tuple[Path, dict[str, Any]]]


def _expected(case: Path) -> dict[str, Any]:
    ours = case / "expected_ours.json"
    name = ours if ours.is_file() else case / "expected.json"
    expected: dict[str, Any] = json.loads(name.read_text(encoding="utf-8"))
    return expected


@pytest.fixture(scope="module", params=DELIVERIES)
def replayed(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Replayed:
    """Returns case → (its folder, its accounts) for a delivery; all cases run in one session."""
    root = tmp_path_factory.mktemp("folded")
    cases = [Case(c.name, (c / "events.jsonl",), c / "tables.json", root / c.name) for c in CASES]
    delivery = DELIVERIES[request.param]
    return {c.name: (c.out, summary) for c, summary in replay(spark, cases, delivery, "jsonl")}


def _check(out: Path, summary: dict[str, Any], tables: dict[str, Any]) -> None:
    for table, expected in tables.items():
        assert table in summary["tables"], f"{table} is missing, there are {list(summary['tables'])}"
        rows = rows_of(out / summary["tables"][table]["file"])
        assert len(rows) == summary["tables"][table]["rows"]
        columns = expected["columns"]
        if rows:
            assert set(columns) <= set(rows[0])
        assert multiset(rows, columns) == multiset(expected["rows"], columns)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_case_gives_the_rows_of_its_peer(case: Path, replayed: Replayed) -> None:
    out, summary = replayed[case.name]
    expected = _expected(case)
    _check(out, summary, expected.get("tables", {}))
    assert not set(expected.get("absent_tables", ())) & set(summary["tables"])
    counted = summary["applied"] + summary["superseded"] + summary["quarantined"] + summary["suppressed"]
    assert summary["read"] == counted
    assert len(summary["quarantine"]) == summary["quarantined"]
    if "rejected_lines" in expected:
        assert sorted(q["line"] for q in summary["quarantine"]) == sorted(expected["rejected_lines"])
    if "derived" in expected:
        _check_derived(out, summary, expected["derived"])


def _check_derived(out: Path, summary: dict[str, Any], derived: dict[str, Any]) -> None:
    (table,) = summary["tables"].values()
    sums: dict[str, Decimal] = {}
    for row in rows_of(out / table["file"]):
        sums[row["name"]] = sums.get(row["name"], Decimal(0)) + read(row["weight"], "decimal(10,3)")
    assert derived, "the case derives something"
    for row in derived.get("rows", ()):
        assert sums[row["name"]] == Decimal(str(next(v for k, v in row.items() if k != "name")))


@pytest.mark.long
@pytest.mark.parametrize("case", [c for c in CASES if "stages" in _expected(c)], ids=lambda c: c.name)
def test_every_stage_gives_the_expected_rows(
    case: Path, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = (case / "events.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    root = tmp_path_factory.mktemp("stages")
    stages = _expected(case)["stages"]
    cases = []
    for stage in stages:
        events = root / f"{stage['after_line']}.jsonl"
        events.write_text("".join(text[: stage["after_line"]]), encoding="utf-8")
        name = f"after-{stage['after_line']}"
        cases.append(Case(name, (events,), case / "tables.json", root / name))
    size = gcd(*(stage["after_line"] for stage in stages))
    results = list(replay(spark, cases, Delivery(batch_size=size), "jsonl"))
    for stage, (folded_case, summary) in zip(stages, results, strict=True):
        _check(folded_case.out, summary, stage["tables"])
