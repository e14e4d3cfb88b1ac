"""Each rule of the changelog, merged in one batch and one record at a time."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ingest.backfill.replay import Case, Delivery, replay
from tests.changelogs import write
from tests.merge import (  # noqa: F401 (their rules are among all)
    declared_rules,
    key_type_rules,
    new_key_rules,
    origin_rules,
    resync_rules,
    snapshot_rules,
    tombstone_rules,
    type_rules,
)
from tests.merge.rule_groups import RuleGroup, rule_groups
from tests.merge.rules import Rows, Rule, rules

pytestmark = pytest.mark.spark
RULES = list(rules())
DELIVERIES = ["one batch", pytest.param("one record a batch", marks=pytest.mark.long)]


@dataclass
class Outcome:
    """The tables of a rule, and the codes of its quarantined records by number."""

    tables: dict[str, Rows] = field(default_factory=dict)
    expected: dict[str, Rows] = field(default_factory=dict)
    quarantined: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Replayed:
    outcomes: dict[int, Outcome]
    counts: list[tuple[dict[str, int], dict[str, int]]]
    """The actual and the expected counts of each lakehouse."""


def _outcomes(group: RuleGroup, case: Case, summary: dict[str, Any]) -> Iterator[tuple[int, Outcome]]:
    found = {
        table: [json.loads(line) for line in (case.out / settings["file"]).read_text(encoding="utf-8").splitlines()]
        for table, settings in summary["tables"].items()
    }
    turns = list(group.turns())
    for one in group.rules:
        lines = {line: at for line, (_, whose, at) in enumerate(turns) if whose == one}
        quarantined = {lines[q["line"]]: q["code"] for q in summary["quarantine"] if q["line"] in lines}
        yield one.number, Outcome(one.rows_of_rule(found), one.expected(), quarantined)
    of_a_rule = {t for one in group.rules for t in one.expected()}
    assert {t: rows for t, rows in found.items() if t not in of_a_rule and rows} == {}


@pytest.fixture(scope="module", params=DELIVERIES)
def replayed(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Replayed:
    root = tmp_path_factory.mktemp("rules")
    all_found = Replayed({}, [])
    for number, group in enumerate(rule_groups(RULES)):
        turns = list(group.turns())
        folder = write(root / "events" / str(number), [record for record, _, _ in turns], group.settings())
        case = Case("rules", (folder / "events.jsonl",), folder / "tables.json", root / str(number))
        one_each = request.param == "one record a batch"
        ((_, summary),) = replay(spark, [case], Delivery(len(group.rules) if one_each else 0), "jsonl")
        all_found.outcomes.update(_outcomes(group, case, summary))
        right = {
            "read": len(turns),
            "quarantined": sum(len(one.rule.quarantined) for one in group.rules),
            "suppressed": sum(one.rule.suppressed for one in group.rules) + sum(one is None for _, one, _ in turns),
        }
        all_found.counts.append((summary, right))
    return all_found


def _bag(rows: Rows) -> Counter[str]:
    return Counter(json.dumps(row, sort_keys=True) for row in rows)


@pytest.mark.parametrize("number", range(len(RULES)), ids=lambda n: RULES[n].name)
def test_rule_holds(number: int, replayed: Replayed) -> None:
    rule: Rule = RULES[number]
    outcome = replayed.outcomes[number]
    assert {t: _bag(rows) for t, rows in outcome.tables.items()} == {
        t: _bag(rows) for t, rows in outcome.expected.items()
    }
    assert outcome.quarantined == rule.quarantined


def test_each_record_is_counted_once(replayed: Replayed) -> None:
    for summary, right in replayed.counts:
        assert {what: summary[what] for what in right} == right
        counted = sum(summary[what] for what in ("applied", "superseded", "quarantined", "suppressed"))
        assert summary["read"] == counted
