"""Changelogs from public problem reports, merged in one batch, record by record, and shuffled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ingest.backfill.replay import Case, Delivery, replay
from ingest.names import caseless
from tests.conformance.reading import multiset, rows_of
from tests.conformance.test_cases import FOLDER

REPORTS = (
    "column-type-changes",
    "column-renamed-to-another-case",
    "column-with-a-space-is-added",
    "dropped-column-comes-back",
    "dropped-column-with-a-default",
    "incremental-snapshot-without-lsn",
    "key-loses-a-column",
    "keyless-table-gets-a-column-with-a-default",
    "keyless-table-loses-a-column",
    "names-with-spaces-widen-twice",
    "nullable-column-with-default",
    "plain-rows-of-the-default-unwrap",
    "primary-key-gets-a-column",
    "primary-key-moves-to-another-column",
    "timestamp-column-is-added",
)
"""The reports that must give the rows in `expected.json`."""
OFFSETS_ONLY = ("plain-rows-of-the-default-unwrap",)
"""Those whose records have no position of the source."""
THERE = [name for name in REPORTS if (FOLDER / "reports" / name).is_dir()]
pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not THERE, reason=f"the reports are not at {FOLDER}"),
]
DELIVERIES = {
    "one batch": Delivery(),
    "one record a batch": Delivery(batch_size=1),
    "shuffled": Delivery(batch_size=1, seed=5, any_order=True),
}
LANES = ["one batch", pytest.param("one record a batch", marks=pytest.mark.long)]
Replayed = dict[str, tuple[Path, dict[str, Any]]]


@pytest.fixture(scope="module", params=[*LANES, pytest.param("shuffled", marks=pytest.mark.long)])
def replayed(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Replayed:
    root = tmp_path_factory.mktemp("reports")
    cases = []
    for name in THERE:
        folder = FOLDER / "reports" / name
        cases.append(Case(name, (folder / "events.jsonl",), folder / "tables.json", root / name))
    found = replay(spark, cases, DELIVERIES[request.param], "jsonl")
    return {case.name: (case.out, summary) for case, summary in found}


@pytest.mark.parametrize("name", THERE)
def test_report_gives_the_expected_rows(name: str, replayed: Replayed, request: pytest.FixtureRequest) -> None:
    if name in OFFSETS_ONLY and request.node.callspec.params["replayed"] == "shuffled":
        pytest.skip("only offsets order its records, and Kafka delivers them in their order")
    out, summary = replayed[name]
    assert not summary["quarantined"]
    expected = json.loads((FOLDER / "reports" / name / "expected.json").read_text(encoding="utf-8"))["tables"]
    assert summary["tables"].keys() == expected.keys()
    for table, right in expected.items():
        rows = rows_of(out / summary["tables"][table]["file"])
        if request.node.callspec.params["replayed"] == "shuffled":  # A column has the name of its first event.
            names = {caseless(column): column for column in right["columns"]}
            rows = [{names.get(caseless(name), name): value for name, value in row.items()} for row in rows]
        assert multiset(rows, right["columns"]) == multiset(right["rows"], right["columns"])


TWO_DATABASES = FOLDER / "reports" / "two-databases-same-table"


@pytest.mark.skipif(not TWO_DATABASES.is_dir(), reason=f"the report is not at {FOLDER}")
@pytest.mark.parametrize("delivery", LANES)
def test_tables_of_two_databases_are_separate_or_refused(spark: SparkSession, tmp_path: Path, delivery: str) -> None:
    named = tmp_path / "tables.json"
    named.write_text(json.dumps({"table_names": "server.schema.table"}), encoding="utf-8")
    right = json.loads((TWO_DATABASES / "expected.json").read_text(encoding="utf-8"))["tables"]
    cases = [
        Case(name, (TWO_DATABASES / "events.jsonl",), tables, tmp_path / name)
        for name, tables in (("refused", None), ("named", named))
    ]
    for case, summary in replay(spark, cases, DELIVERIES[delivery], "jsonl"):
        tables = {"eu.public.orders": "(eu) orders", "us.public.orders": "(us) orders"}
        if case.name == "refused":
            tables = {"public.orders": "(eu) orders"}
            assert [(q["line"], q["code"]) for q in summary["quarantine"]] == [
                (line, "other-database") for line in (1, 3, 5)
            ]
        assert summary["tables"].keys() == tables.keys()
        for table, expected in tables.items():
            rows = rows_of(case.out / summary["tables"][table]["file"])
            columns = right[expected]["columns"]
            assert multiset(rows, columns) == multiset(right[expected]["rows"], columns)
