"""Runs that crash between any two commits and continue: the same rows, and every event accounted for once."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from ingest.batches.rules import DEFAULT_PLACEHOLDER, Rules
from ingest.changelog.accounting import Account
from ingest.delta.delta_table import Table
from ingest.lakehouse.accounts import Accounts
from ingest.lakehouse.bronze import Bronze
from ingest.lakehouse.silver import Silver
from ingest.lakehouse.tombstones import Tombstones
from ingest.loop.capture import Capture
from ingest.loop.merge import Merge
from ingest.names import Lakehouse
from ingest.quality.accounting import audit
from ingest.sources.files import FileSource, lines
from ingest.testing import Event, fold, fold_bag
from ingest.testing.changelogs import COLUMNS, as_debezium, random_bag, random_changelog
from ingest.testing.notation import parse_events
from ingest.tuning import DEFAULT_TUNING
from tests.tunings import LARGE_FILES

pytestmark = pytest.mark.spark
CASES = int(os.environ.get("FUZZ_CASES", "200")) // 10
SEED = int(os.environ.get("FUZZ_SEED", "4"))
PIPELINE = "crash"


class Died(Exception):
    """Raised in place of SIGKILL: the run does nothing after it."""


@pytest.fixture
def random_deaths(monkeypatch: pytest.MonkeyPatch) -> Random:
    """Kills runs at one commit in four: before it is written, or right after. Returns the generator that decides."""
    random, commit = Random(SEED), Table.commit

    def dying(*arguments: Any, **named: Any) -> Any:
        chance = random.random()
        if chance < 0.13:
            raise Died
        done = commit(*arguments, **named)
        if chance > 0.87:
            raise Died
        return done

    monkeypatch.setattr(Table, "commit", dying)
    return random


def run_until_merged(spark: SparkSession, layout: Lakehouse, file: Path, size: int, random: Random) -> int:
    """Runs until all is merged. Returns the number of runs that died. A run either rewrites files or writes deletion
    vectors. Every other run merges all that is left as one slice, except a slice that had begun as a smaller one; the
    others merge each batch right after its capture, which keeps it cached."""
    deaths = 0
    while True:
        source = FileSource(list(lines([file])))
        rules = Rules(tuning=random.choice([LARGE_FILES, DEFAULT_TUNING]))
        bronze = Bronze(spark, layout.bronze(PIPELINE), tuning=rules.tuning)
        later = bool(deaths % 2)
        try:
            capture = Capture(spark, source, bronze, rules.naming, size, merges=not later)
            merge = Merge(spark, PIPELINE, layout, rules, bronze, slice_events=1 << 30 if later else 1)
            while capture.step():
                if not later:
                    merge.step(capture.captured.batch)
            while merge.step():
                pass
        except Died:
            deaths += 1
        else:
            return deaths


def table_of(spark: SparkSession, layout: Lakehouse, name: str) -> list[dict[str, Any]]:
    return [row.asDict() for row in Silver(spark, layout.silver(PIPELINE, name)).rows().collect()]


@pytest.mark.long
def test_interrupted_runs_equal_one_run(
    spark: SparkSession, tmp_path: Path, random_deaths: Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    changelogs = [random_changelog(random_deaths, 12) for _ in range(CASES)]
    bags = [random_bag(random_deaths, 12) for _ in range(CASES)]
    records = [r for n, events in enumerate(changelogs) for r in as_debezium(events, "f.keyed", n, DEFAULT_PLACEHOLDER)]
    records += [r for n, (_, sent) in enumerate(bags) for r in as_debezium(sent, "f.bag", n, DEFAULT_PLACEHOLDER)]
    records.sort(key=lambda r: r["offset"])
    file = tmp_path / "events.jsonl"
    file.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    layout = Lakehouse(str(tmp_path / "lakehouse"))
    deaths = run_until_merged(spark, layout, file, len(records) // 3 + 1, random_deaths)
    print(f"{deaths} runs died (FUZZ_SEED={SEED} FUZZ_CASES={CASES * 10})")
    assert deaths > 3
    monkeypatch.undo()
    _check_keyed_rows(table_of(spark, layout, "f.keyed"), changelogs)
    _check_keyless_rows(table_of(spark, layout, "f.bag"), [events for events, _ in bags])
    bronze = Bronze(spark, layout.bronze(PIPELINE)).rows()
    found = audit(bronze, Accounts(spark, layout.accounts, PIPELINE).rows())
    assert found.problems == []
    assert (found.merged, found.waiting) == (len(records), 0)


def test_slices_after_an_unaccounted_one_are_merged(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: in a keyless table, the slices after such a death were never written."""
    events, sent = random_bag(Random(SEED), 12)
    file = tmp_path / "events.jsonl"
    records = as_debezium(sent, "f.bag", 0, DEFAULT_PLACEHOLDER)
    file.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    died, add = list[int](), Accounts.add

    def dying(accounts: Accounts, merged: int, through_batch: int, found: list[Account]) -> None:
        if not died:
            died.append(through_batch)
            raise Died
        add(accounts, merged, through_batch, found)

    monkeypatch.setattr(Accounts, "add", dying)
    layout = Lakehouse(str(tmp_path / "lakehouse"))
    deaths = run_until_merged(spark, layout, file, len(records) // 2 + 1, Random(SEED))
    assert (deaths, died) == (1, [1])
    _check_keyless_rows(table_of(spark, layout, "f.bag"), [events])


def test_tombstones_are_committed_before_rows_are_deleted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a run died after it deleted the row and before its tombstone, a late event would revive it."""
    file = tmp_path / "events.jsonl"
    records = as_debezium(parse_events("c1@10(x,3,long) d1@20", COLUMNS), "f.keyed", 0, DEFAULT_PLACEHOLDER)
    file.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    layout = Lakehouse(str(tmp_path / "lakehouse"))
    bronze = Bronze(spark, layout.bronze(PIPELINE))
    capture = Capture(spark, FileSource(list(lines([file]))), bronze, Rules().naming, 1)
    while capture.step():
        pass
    merge = Merge(spark, PIPELINE, layout, Rules(), bronze, slice_events=1)
    assert [a.applied for a in merge.step()] == [1]

    def dying(tombstones: Tombstones, states: DataFrame, is_small: bool) -> None:
        raise Died

    monkeypatch.setattr(Tombstones, "write", dying)
    with pytest.raises(Died):
        merge.step()
    assert [row["id"] for row in table_of(spark, layout, "f.keyed")] == [1]
    monkeypatch.undo()
    assert [a.applied for a in merge.step()] == [1]
    assert table_of(spark, layout, "f.keyed") == []


def _check_keyed_rows(rows: list[dict[str, Any]], changelogs: list[list[Event]]) -> None:
    found: dict[int, dict[Any, Any]] = {n: {} for n in range(len(changelogs))}
    for row in rows:
        assert row["id"] not in found[row["case"]], "a key has two rows"
        found[row["case"]][row["id"]] = {c: row[c] for c in COLUMNS}
    for number, events in enumerate(changelogs):
        assert found[number] == fold(events, COLUMNS), (number, SEED, events)


def _check_keyless_rows(rows: list[dict[str, Any]], bags: list[list[Event]]) -> None:
    found: dict[int, Counter[Any]] = {n: Counter() for n in range(len(bags))}
    for row in rows:
        found[row["case"]][tuple(sorted((c, row[c]) for c in COLUMNS))] += 1
    for number, events in enumerate(bags):
        assert found[number] == fold_bag(events), (number, SEED, events)
