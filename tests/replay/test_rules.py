"""Each rule of the changelog, folded in one batch, one record at a time, and shuffled as Kafka could."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ingest.run.replay import Case, Delivery, replay
from tests.replay.changelogs import write
from tests.replay.rules import Rule, rules

pytestmark = pytest.mark.spark
RULES = list(rules())
DELIVERIES = {
    "one batch": Delivery(),
    "one record a batch": Delivery(batch_size=1),
}
Folded = dict[str, tuple[Path, dict[str, Any]]]


@pytest.fixture(scope="module", params=DELIVERIES)
def folded(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Folded:
    root = tmp_path_factory.mktemp("rules")
    cases = []
    for number, rule in enumerate(RULES):
        folder = write(root / "events" / str(number), rule.records, rule.told)
        told = folder / "tables.json"
        events = (folder / "events.jsonl",)
        cases.append(Case(str(number), events, told if told.is_file() else None, root / str(number)))
    delivery = DELIVERIES[request.param]
    return {case.name: (case.out, summary) for case, summary in replay(spark, cases, delivery, "jsonl")}


def _bag(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(json.dumps(row, sort_keys=True) for row in rows)


@pytest.mark.parametrize("number", range(len(RULES)), ids=lambda n: RULES[n].name)
def test_rule_holds(number: int, folded: Folded) -> None:
    rule: Rule = RULES[number]
    out, summary = folded[str(number)]
    found = {
        table: [json.loads(line) for line in (out / told["file"]).read_text(encoding="utf-8").splitlines()]
        for table, told in summary["tables"].items()
    }
    assert {t: _bag(rows) for t, rows in found.items()} == {t: _bag(rows) for t, rows in rule.tables.items()}
    assert {q["line"]: q["code"] for q in summary["quarantine"]} == rule.quarantined
    assert summary["suppressed"] == rule.suppressed
    assert summary["read"] == len(rule.records)
    counted = summary["applied"] + summary["superseded"] + summary["quarantined"] + summary["suppressed"]
    assert summary["read"] == counted
