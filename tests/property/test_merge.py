"""Random changelogs, folded by the real merge and by the reference: the same rows, however they were delivered."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ingest.run.replay import Case, Delivery, replay
from ingest.run.rules import DEFAULT_PLACEHOLDER
from ingest.testing import Event, fold
from ingest.testing.changelogs import COLUMNS, as_debezium, random_changelog

pytestmark = pytest.mark.spark
CASES = int(os.environ.get("FUZZ_CASES", "200"))
SEED = int(os.environ.get("FUZZ_SEED", "4"))


def rows_of(path: Path) -> dict[int, dict[Any, dict[str, Any]]]:
    """case → id → row."""
    found: dict[int, dict[Any, dict[str, Any]]] = defaultdict(dict)
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        case, key = row.pop("case"), row.pop("id")
        assert key not in found[case], "a key has two rows"
        found[case][key] = {c: row.get(c) for c in COLUMNS}
    return found


def run(spark: SparkSession, folder: Path, changelogs: list[list[Event]], delivery: Delivery, tables: int) -> None:
    """Each changelog is a partition of one of `tables` topics, and rows of its own in that topic's table."""
    folder.mkdir()
    file = folder / "events.jsonl"
    with file.open("w", encoding="utf-8") as lines:
        for case, events in enumerate(changelogs):
            for record in as_debezium(events, f"fuzz.t{case % tables}", case, DEFAULT_PLACEHOLDER):
                lines.write(json.dumps(record) + "\n")
    ((_, summary),) = replay(spark, [Case("fuzz", (file,), None, folder / "out")], delivery, "jsonl")
    found: dict[int, dict[Any, dict[str, Any]]] = {}
    for table in summary["tables"].values():
        found |= rows_of(folder / "out" / table["file"])
    wrong = {
        case: (events, expected, found.get(case, {}))
        for case, events in enumerate(changelogs)
        if (expected := fold(events, COLUMNS)) != found.get(case, {})
    }
    for case, (events, expected, got) in list(wrong.items())[:3]:
        print(f"\ncase {case} of seed {SEED}:", *events, f"expected {expected}", f"found    {got}", sep="\n  ")
    assert not wrong, f"{len(wrong)} of {len(changelogs)} changelogs differ (FUZZ_SEED={SEED} FUZZ_CASES={CASES})"
    assert summary["read"] == sum(map(len, changelogs))
    assert summary["quarantined"] == 0
    assert summary["read"] == summary["applied"] + summary["superseded"] + summary["suppressed"]


@pytest.mark.parametrize("batches", [1, 7])
def test_silver_is_what_the_reference_says(spark: SparkSession, tmp_path: Path, batches: int) -> None:
    random = Random(SEED)
    changelogs = [random_changelog(random, 12) for _ in range(CASES)]
    size = sum(map(len, changelogs)) // batches + 1
    run(spark, tmp_path / "run", changelogs, Delivery(batch_size=size, seed=SEED), tables=1)


def test_truncates_empty_what_was_before_them(spark: SparkSession, tmp_path: Path) -> None:
    random = Random(SEED)
    changelogs = [random_changelog(random, 12, truncates=True) for _ in range(8)]
    size = sum(map(len, changelogs)) // 4 + 1
    run(spark, tmp_path / "run", changelogs, Delivery(batch_size=size, seed=SEED), tables=8)
