"""Random changelogs whose tables are set aside repeatedly while runs crash give the same tables as one undisturbed
run."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from ingest.batches.rules import DEFAULT_PLACEHOLDER, Rules
from ingest.changelog.accounting import COUNTS
from ingest.delta.delta_table import Table
from ingest.lakehouse.accounts import Accounts
from ingest.lakehouse.bronze import Bronze
from ingest.lakehouse.quarantine import SET_ASIDE, Quarantine
from ingest.lakehouse.silver import Silver
from ingest.loop.capture import Capture
from ingest.loop.merge import Merge
from ingest.names import Lakehouse
from ingest.quality.accounting import audit
from ingest.sources.files import FileSource, lines
from ingest.testing import fold, fold_bag
from ingest.testing.changelogs import COLUMNS, as_debezium, random_bag, random_changelog

pytestmark = [pytest.mark.spark, pytest.mark.long]


class Died(BaseException):
    """Raised in place of SIGKILL."""


@pytest.mark.parametrize("seed", [7, 8])
def test_faults_and_deaths_end_in_the_tables_of_one_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Spark fails for some batches of either table, also between two commits, and runs die at any commit."""
    random, commit = Random(seed), Table.commit
    changelogs, bags = [random_changelog(random, 12) for _ in range(3)], [random_bag(random, 12) for _ in range(3)]
    records = [
        r for n, changelog in enumerate(changelogs) for r in as_debezium(changelog, "f.keyed", n, DEFAULT_PLACEHOLDER)
    ]
    records += [r for n, (_, sent) in enumerate(bags) for r in as_debezium(sent, "f.bag", n, DEFAULT_PLACEHOLDER)]
    records.sort(key=lambda r: r["offset"])
    file, layout = tmp_path / "events.jsonl", Lakehouse(str(tmp_path / "lakehouse"))
    file.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    seen = {"deaths": 0, "faults": 0, "aside": 0}

    def failing(table: Table, *arguments: Any, **named: Any) -> Any:
        chance = random.random()
        if chance < 0.12:
            seen["deaths"] += 1
            raise Died
        if 0.3 < chance < 0.75 and any(part in table.path for part in ("/silver/", "/pending/", "/tombstones/")):
            seen["faults"] += 1
            raise AnalysisException("[UNKNOWN_CONDITION] a value out of a row")
        return commit(table, *arguments, **named)

    def run(slice_events: int) -> Merge:
        bronze = Bronze(spark, layout.bronze("f"))
        capture = Capture(spark, FileSource(list(lines([file]))), bronze, Rules().naming, 8)
        merge = Merge(spark, "f", layout, Rules(), bronze, slice_events=slice_events)
        while capture.step() or merge.step():
            seen["aside"] = max(seen["aside"], len(merge.set_aside))
        return merge

    monkeypatch.setattr(Table, "commit", failing)
    for turn in range(20):
        if min(seen["deaths"], seen["faults"]) >= 4:
            break
        with suppress(Died):
            run(30 if turn % 2 else 1)
    monkeypatch.undo()
    assert run(40).set_aside == {}
    assert min(seen.values()) > 0, seen
    silver = {t: Silver(spark, layout.silver("f", t)) for t in ("f.keyed", "f.bag")}
    rows = {t: [r.asDict() for r in table.rows().collect()] for t, table in silver.items()}
    for number, changelog in enumerate(changelogs):
        rows_of_case = {r["id"]: {c: r[c] for c in COLUMNS} for r in rows["f.keyed"] if r["case"] == number}
        assert rows_of_case == fold(changelog, COLUMNS), (number, seen)
    for number, (rows_said, _) in enumerate(bags):
        found = Counter(tuple(sorted((c, r[c]) for c in COLUMNS)) for r in rows["f.bag"] if r["case"] == number)
        assert found == fold_bag(rows_said), (number, seen)
    accounts = Accounts(spark, layout.accounts, "f").rows()
    result = audit(Bronze(spark, layout.bronze("f")).rows(), accounts)
    assert result.problems == []
    assert (result.merged, result.waiting) == (len(records), 0)
    left = Quarantine(spark, layout.quarantine, "f").rows().where(f"code = '{SET_ASIDE}'")
    assert left.count() == 0
    assert all(result.tables[t][c] >= 0 for t in rows for c in COUNTS)
