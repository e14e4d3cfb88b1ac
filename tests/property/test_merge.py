"""Random changelogs, merged and folded by the oracle: the same rows for every delivery."""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from itertools import chain, count, zip_longest
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from pyspark.sql import SparkSession

from ingest.backfill.replay import Case, Delivery, replay
from ingest.batches.rules import DEFAULT_PLACEHOLDER
from ingest.jvm.library import ENVIRONMENT, tasks_have_library
from ingest.lakehouse import page_index, silver
from ingest.loop import capture
from ingest.testing import Event, fold, format_events, parse_events, shrink
from ingest.testing.changelogs import COLUMNS, as_debezium, random_changelog
from ingest.testing.strategies import changelogs, deliveries

pytestmark = pytest.mark.spark
CASES = int(os.environ.get("FUZZ_CASES", "200"))
CASES_PER_FOLD = 2000
SEED = int(os.environ.get("FUZZ_SEED", "4"))
FOUND = (
    "u2@50(y,4,longer) u1@90(x,1,?) d2>0@110 c0@110(x,6,?) d0>1@110",
    "c0@10(x,0,long) c1@30(x,0,long) null1 u1<0@40(x,0,?) c1@30(x,0,long) null1 u1<0@40(x,0,?)",
    "c1@70(~,0,long) d1>0@80 c1@70(~,0,long) d1>0@80 c0@80(x,7,?)",
    "c1@10(~,5,long) d1>0@60 c0@60(~,7,?) u0@90(~,4,?) d2>0@90 c0@90(x,2,?)",
)
"""The smallest changelogs of faults that random ones have shown."""
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
"""What a row held is told after it has moved to another key."""
TRUNCATED = (
    "c0@10(x,0,~) c1@40(y,1,~) t@30",
    "t@30 c0@20(x,0,~) c1@40(y,1,~)",
    "c0@10(x,0,long) u0@40(y,1,?) t@30",
)
DRAWS = settings(database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))


def rows_of(path: Path) -> dict[int, dict[Any, dict[str, Any]]]:
    """case → id → row."""
    found: dict[int, dict[Any, dict[str, Any]]] = defaultdict(dict)
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        case, key = row.pop("case"), row.pop("id")
        assert key not in found[case], "a key has two rows"
        found[case][key] = {c: row.get(c) for c in COLUMNS}
    return found


Rows = dict[Any, dict[str, Any]]


def sizes(cases: int) -> list[int]:
    """How many changelogs each Spark job folds."""
    return [min(CASES_PER_FOLD, cases - at) for at in range(0, cases, CASES_PER_FOLD)]


def folded(
    spark: SparkSession, folder: Path, said: Sequence[list[Event]], batches: int, tables: int, size: int | None = None
) -> list[Rows]:
    """The rows that each changelog comes to. Each is a partition of one of `tables` topics, and rows of its own in
    that topic's table. `size`: of a batch, in place of their number; then the changelogs take turns, event by event."""
    folder.mkdir(parents=True)
    file = folder / "events.jsonl"
    topics = [
        as_debezium(events, f"fuzz.t{case % tables}", case, DEFAULT_PLACEHOLDER) for case, events in enumerate(said)
    ]
    in_turn = chain.from_iterable(zip_longest(*topics)) if size else chain.from_iterable(topics)
    file.write_text("".join(json.dumps(record) + "\n" for record in in_turn if record), encoding="utf-8")
    delivery = Delivery(batch_size=size or sum(map(len, said)) // batches + 1, seed=None if size else SEED)
    ((_, summary),) = replay(spark, [Case("fuzz", (file,), None, folder / "out")], delivery, "jsonl")
    found: dict[int, dict[Any, dict[str, Any]]] = {}
    for table in summary["tables"].values():
        found |= rows_of(folder / "out" / table["file"])
    assert summary["read"] == sum(map(len, said))
    assert summary["quarantined"] == 0
    assert summary["read"] == summary["applied"] + summary["superseded"] + summary["suppressed"]
    return [found.get(case, {}) for case in range(len(said))]


def holds(spark: SparkSession, folder: Path, said: list[list[Event]], batches: int, tables: int) -> None:
    """Silver is what the reference says; where it is not, the first that differs is made small and printed."""
    folds = count()

    def differ(some: Sequence[list[Event]]) -> list[bool]:
        found = folded(spark, folder / str(next(folds)), some, batches, tables)
        return [fold(events, COLUMNS) != rows for events, rows in zip(some, found, strict=True)]

    wrong = [events for events, differs in zip(said, differ(said), strict=True) if differs]
    if wrong:
        small = shrink(wrong[0], differ)
        print(f"\n{format_events(small, COLUMNS)}\n  should be {fold(small, COLUMNS)}")
    assert not wrong, f"{len(wrong)} of {len(said)} changelogs differ (FUZZ_SEED={SEED} FUZZ_CASES={CASES})"


def sampled(random: Random, size: int, number: int) -> list[list[Event]]:
    """For two tables in turn: any changelogs, half of them such as a real table could have gone through; and those
    with whole images alone, which are merged row by row."""
    consistent: list[list[Event]] = []

    @seed(SEED + number)
    @settings(DRAWS, max_examples=size // 4 + 1)
    @given(changelogs().flatmap(deliveries))
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
    ("batches", "size"),
    [
        (1, "small"),
        pytest.param(7, "large", marks=pytest.mark.long),
        pytest.param(12, "few of large", marks=pytest.mark.long),
    ],
)
def test_silver_is_what_the_reference_says(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: int, size: str
) -> None:
    """Tables of any size are written as `size` ones are: files anew, or rows marked and keys looked for by page. Of
    large ones the events are not at hand, as very many are not, and as of these the first batches are held against all
    that is stored, later ones against what is there of their keys; unless they are few: then about every other batch
    has too many keys to look for them by page."""
    if size != "small":
        monkeypatch.setattr(silver, "_REWRITABLE", 0)
        monkeypatch.setattr(page_index, "_SEARCHED", 0)
    if size == "large":
        monkeypatch.setattr(capture, "SMALL_SLICE_EVENTS", -1)
        monkeypatch.setattr(sys.modules["ingest.reconcile.whole_rows"], "SMALL_BATCH_EVENTS", -1)
        monkeypatch.setattr(sys.modules["ingest.reconcile.whole_rows"], "FEW_KEYS", -1)
        monkeypatch.setattr(sys.modules["ingest.reconcile.whole_rows"], "_WHOLE", 1)
    if size == "few of large":
        monkeypatch.setattr(page_index, "FEW_KEYS", 80)
        monkeypatch.setattr(page_index, "_key_summary", page_index._key_summary.__wrapped__)  # which knows it
    random = Random(SEED)
    for number, cases in enumerate(sizes(CASES)):
        holds(spark, tmp_path / str(number), sampled(random, cases, number), batches, tables=2)


@pytest.mark.long
def test_truncates_empty_what_was_before_them(spark: SparkSession, tmp_path: Path) -> None:
    random = Random(SEED)
    truncated = [random_changelog(random, 12, truncates=True) for _ in range(8)]
    holds(spark, tmp_path / "run", truncated, batches=4, tables=8)


def test_truncates_leave_what_came_after_them(spark: SparkSession, tmp_path: Path) -> None:
    """One event of each table a batch, the truncate before or after what it takes away."""
    said = [parse_events(text, COLUMNS) for text in TRUNCATED]
    found = folded(spark, tmp_path / "run", said, 1, len(said), len(said))
    assert found == [fold(one, COLUMNS) for one in said]


@pytest.mark.parametrize("lane", [pytest.param("with the library", marks=pytest.mark.long), "without it"])
def test_random_changelogs_with_and_without_the_java_library(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lane: str
) -> None:
    monkeypatch.setenv(ENVIRONMENT, "on" if lane == "with the library" else "off")
    assert tasks_have_library(spark.sparkContext) == (lane == "with the library")
    said = sampled(Random(SEED), 16, 0)
    holds(spark, tmp_path / "in batches", said, batches=3, tables=2)
    said = [parse_events(text, COLUMNS) for text in (*FOUND, *LATE_EVENTS)]
    should = [fold(one, COLUMNS) for one in said]
    assert folded(spark, tmp_path / "one by one", said, 1, 1, len(said)) == should


@pytest.mark.parametrize(("events", "tables"), [(1, 1), pytest.param(2, 2, marks=pytest.mark.long)])
@pytest.mark.parametrize("which", [FOUND, LATE_EVENTS], ids=["found wrong once", "told late"])
def test_these_are_right(spark: SparkSession, tmp_path: Path, which: Sequence[str], events: int, tables: int) -> None:
    """Merged by one or two events of each changelog at a time."""
    said = [parse_events(text, COLUMNS) for text in which]
    should = [fold(one, COLUMNS) for one in said]
    assert folded(spark, tmp_path / "run", said, 1, tables, events * len(said)) == should
