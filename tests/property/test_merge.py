"""Random changelogs, merged in any batches, give the rows that the oracle folds of them."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, count, zip_longest
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from pyspark.sql import SparkSession

from ingest.backfill.replay import Case, Delivery, replay
from ingest.batches.rules import DEFAULT_PLACEHOLDER
from ingest.delta.classes import as_list
from ingest.jvm.library import ENVIRONMENT, tasks_have_library
from ingest.testing import Event, fold, format_events, parse_events, shrink, strategies
from ingest.testing.changelogs import COLUMNS, as_debezium, random_changelog
from ingest.tuning import DEFAULT_TUNING, Tuning
from tests.tunings import LARGE_BATCHES, MANY_KEYS

pytestmark = pytest.mark.spark
CASES = int(os.environ.get("FUZZ_CASES", "200"))
CASES_PER_REPLAY = 2000
SEED = int(os.environ.get("FUZZ_SEED", "4"))
REGRESSIONS = (
    "u2@50(y,4,longer) u1@90(x,1,?) d2>0@110 c0@110(x,6,?) d0>1@110",
    "c0@10(x,0,long) c1@30(x,0,long) null1 u1<0@40(x,0,?) c1@30(x,0,long) null1 u1<0@40(x,0,?)",
    "c1@70(~,0,long) d1>0@80 c1@70(~,0,long) d1>0@80 c0@80(x,7,?)",
    "c1@10(~,5,long) d1>0@60 c0@60(~,7,?) u0@90(~,4,?) d2>0@90 c0@90(x,2,?)",
    "c1@10(x,0,~) c0@90(x,1,~) d0@90 c0@90(x,1,~) u0@120(y,4,?)",
)
"""The smallest changelogs of faults that random changelogs have found."""
LATE_EVENTS = (
    "d0>1@40 c1@40(y,1,?) c0@10(x,0,long)",
    "u1<0@40(y,1,?) c0@10(x,0,long)",
    "c0@10(x,0,long) d0>1@40 c1@40(y,1,?) u0@30(x,0,longer) u0@20(x,0,longest)",
    "d0>1@40 c1@40(y,1,?) d1>2@60 c2@60(~,2,?) c0@10(x,0,long)",
    "d1>2@60 c2@60(~,2,?) d0>1@40 c1@40(y,1,?) c0@10(x,0,long)",
    "c0@10(x,0,long) d0>1@40 c1@40(y,1,?) d1@50 c1@60(~,3,~) u0@30(x,0,longer)",
    "c0@10(x,0,long) d0>1@40 c1@40(y,1,?) u1@50(y,2,longest) u0@30(x,0,longer)",
    "c0@10(x,0,long) d0>1@40 c0@50(y,7,~) c1@40(y,1,?) u0@30(x,0,longer) d0>2@60 c2@60(y,8,?)",
    "c0@10(x,0,long) c0@50(y,7,~) d0>1@40 c1@40(y,1,?) c0@10(x,0,long)",
)
"""Earlier values of a row arrive after it has moved to another key."""
TRUNCATED = (
    "c0@10(x,0,~) c1@40(y,1,~) t@30",
    "t@30 c0@20(x,0,~) c1@40(y,1,~)",
    "c0@10(x,0,long) u0@40(y,1,?) t@30",
)
DRAWS = settings(database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))


Rows = dict[Any, dict[str, Any]]
"""id → row."""


def rows_of(path: Path) -> dict[int, Rows]:
    """Returns case → its rows, of a table's JSON lines."""
    found: dict[int, Rows] = defaultdict(dict)
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        case, key = row.pop("case"), row.pop("id")
        assert key not in found[case], "a key has two rows"
        found[case][key] = {c: row.get(c) for c in COLUMNS}
    return found


def sizes(cases: int) -> list[int]:
    """Returns the number of changelogs of each replay."""
    return [min(CASES_PER_REPLAY, cases - at) for at in range(0, cases, CASES_PER_REPLAY)]


@dataclass(frozen=True)
class Replay:
    """Merges changelogs in a folder of its own for each replay. `batches`: their number, in random order. `tables`:
    number of tables, to which the changelogs are dealt out."""

    spark: SparkSession
    folder: Path
    batches: int = 1
    tables: int = 1
    tuning: Tuning = DEFAULT_TUNING
    numbers: Iterator[int] = field(default_factory=count)

    def rows(self, changelogs: Sequence[list[Event]], batch_size: int | None = None) -> list[Rows]:
        """Returns silver's rows of each changelog. Each is a partition of one of the topics, and has rows of its own in
        that topic's table. `batch_size`: records per batch, in place of `batches`; the changelogs then take turns,
        event by event."""
        folder = self.folder / str(next(self.numbers))
        folder.mkdir(parents=True)
        file = folder / "events.jsonl"
        topics = [
            as_debezium(events, f"fuzz.t{case % self.tables}", case, DEFAULT_PLACEHOLDER)
            for case, events in enumerate(changelogs)
        ]
        records = chain.from_iterable(zip_longest(*topics)) if batch_size else chain.from_iterable(topics)
        file.write_text("".join(json.dumps(record) + "\n" for record in records if record), encoding="utf-8")
        event_count = sum(map(len, changelogs))
        delivery = Delivery(batch_size or event_count // self.batches + 1, seed=None if batch_size else SEED)
        cases = [Case("fuzz", (file,), None, folder / "out")]
        ((_, summary),) = replay(self.spark, cases, delivery, "jsonl", self.tuning)
        found: dict[int, Rows] = {}
        for table in summary["tables"].values():
            found |= rows_of(folder / "out" / table["file"])
        assert summary["read"] == event_count
        assert summary["quarantined"] == 0
        assert summary["read"] == summary["applied"] + summary["superseded"] + summary["suppressed"]
        return [found.get(case, {}) for case in range(len(changelogs))]

    def require_oracle_rows(self, changelogs: Sequence[list[Event]]) -> None:
        """Fails where silver's rows differ from the oracle's. Shrinks and prints the first changelog that differs."""
        wrong = [e for e, differs in zip(changelogs, self._differ(changelogs), strict=True) if differs]
        if wrong:
            small = shrink(wrong[0], self._differ)
            print(f"\n{format_events(small, COLUMNS)}\n  should be {fold(small, COLUMNS)}")
        assert not wrong, f"{len(wrong)} of {len(changelogs)} changelogs differ (FUZZ_SEED={SEED} FUZZ_CASES={CASES})"

    def _differ(self, changelogs: Sequence[list[Event]]) -> list[bool]:
        found = self.rows(changelogs)
        return [fold(events, COLUMNS) != rows for events, rows in zip(changelogs, found, strict=True)]


def generated_stages(spark: SparkSession) -> set[tuple[int, str]]:
    """Returns the newest queries' stages of generated code that have run: the query's number, and the stage's name."""
    context: Any = spark.sparkContext._jsc
    context.sc().listenerBus().waitUntilEmpty()
    store = spark._jsparkSession.sharedState().statusStore()
    found = set()
    for query in as_list(store.executionsList()):
        run, number = store.executionMetrics(query.executionId()), query.executionId()
        for node in as_list(store.planGraph(number).allNodes()):
            if node.name().startswith("WholeStageCodegen") and any(
                run.contains(m.accumulatorId()) for m in as_list(node.metrics())
            ):
                found.add((number, node.name()))
    return found


def sampled(random: Random, size: int, number: int) -> list[list[Event]]:
    """Returns `size` changelogs for two tables in turn: one with partial images, of which half are histories that a
    source could have written; one with whole images only."""
    consistent: list[list[Event]] = []

    @seed(SEED + number)
    @settings(DRAWS, max_examples=size // 4 + 1)
    @given(strategies.changelogs().flatmap(strategies.deliveries))
    def draw(events: list[Event]) -> None:
        consistent.append(events)

    draw()
    return [
        consistent[case // 4 % len(consistent)]
        if case % 4 == 0
        else random_changelog(random, 12, partial=case % 2 == 0)
        for case in range(size)
    ]


@pytest.mark.parametrize(
    ("batches", "tuning"),
    [
        pytest.param(1, DEFAULT_TUNING, id="1-small"),
        pytest.param(7, LARGE_BATCHES, marks=pytest.mark.long, id="7-large"),
        pytest.param(12, MANY_KEYS, marks=pytest.mark.long, id="12-few of large"),
    ],
)
def test_silver_equals_the_oracle(spark: SparkSession, tmp_path: Path, batches: int, tuning: Tuning) -> None:
    random = Random(SEED)
    replays = Replay(spark, tmp_path, batches, tables=2, tuning=tuning)
    for number, cases in enumerate(sizes(CASES)):
        replays.require_oracle_rows(sampled(random, cases, number))


@pytest.mark.parametrize(
    ("size", "batches", "tuning"),
    [
        pytest.param(4, 2, DEFAULT_TUNING, id="few"),
        pytest.param(CASES, 7, DEFAULT_TUNING, marks=pytest.mark.long, id="many"),
        pytest.param(CASES, 7, LARGE_BATCHES, marks=pytest.mark.long, id="many-large"),
    ],
)
def test_settings_of_a_run_give_the_same_rows(
    production: SparkSession, tmp_path: Path, size: int, batches: int, tuning: Tuning
) -> None:
    """Other tests run without generated code and in one partition."""
    before = generated_stages(production)
    replays = Replay(production, tmp_path, batches, tables=2, tuning=tuning)
    replays.require_oracle_rows(sampled(Random(SEED), size, 0))
    assert generated_stages(production) - before


@pytest.mark.long
def test_truncates_remove_earlier_rows(spark: SparkSession, tmp_path: Path) -> None:
    random = Random(SEED)
    truncated = [random_changelog(random, 12, truncates=True) for _ in range(8)]
    Replay(spark, tmp_path, 4, tables=8).require_oracle_rows(truncated)


@pytest.mark.long
def test_truncates_keep_later_rows(spark: SparkSession, tmp_path: Path) -> None:
    """Each batch has one event of each table, the truncate before or after the events that it removes."""
    changelogs = [parse_events(text, COLUMNS) for text in TRUNCATED]
    found = Replay(spark, tmp_path, tables=len(changelogs)).rows(changelogs, len(changelogs))
    assert found == [fold(events, COLUMNS) for events in changelogs]


@pytest.mark.parametrize("lane", [pytest.param("with the library", marks=pytest.mark.long), "without it"])
def test_java_library_changes_no_row(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lane: str
) -> None:
    monkeypatch.setenv(ENVIRONMENT, "on" if lane == "with the library" else "off")
    assert tasks_have_library(spark.sparkContext) == (lane == "with the library")
    Replay(spark, tmp_path, 2, tables=2).require_oracle_rows(sampled(Random(SEED), 16, 0))


@pytest.mark.long
def test_known_changelogs_equal_the_oracle_without_java(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT, "off")
    test_known_changelogs_equal_the_oracle(spark, tmp_path, 1, 1)


@pytest.mark.parametrize(("events", "tables"), [pytest.param(1, 2, marks=pytest.mark.long), (2, 1)])
def test_known_changelogs_equal_the_oracle(spark: SparkSession, tmp_path: Path, events: int, tables: int) -> None:
    """Merged by one or two events of each changelog at a time."""
    changelogs = [parse_events(text, COLUMNS) for text in (*REGRESSIONS, *LATE_EVENTS)]
    expected = [fold(one, COLUMNS) for one in changelogs]
    assert Replay(spark, tmp_path, tables=tables).rows(changelogs, events * len(changelogs)) == expected
