"""Many random tables under all changes of their definitions. Where messages tell the changes, silver is the source's
table in every delivery and by any windows. Where events alone show them, it is so once the table was read again, and
what it lacked before has been said."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ingest.backfill.backfill import Backfill, BackfillRequest
from ingest.changelog.point import Point
from ingest.config import Pipeline
from ingest.evolution.definition import Origin
from ingest.lakehouse.catalog import CatalogEntry
from ingest.names import caseless
from ingest.testing import fold
from ingest.testing.oracle import Row
from ingest.testing.table_records import read_rows, unmatched
from ingest.testing.tables import TableStory
from tests.altered.tables import RECORD_BY_RECORD, MergedTables, Sent, merged, rows_of, shown, told
from tests.deaths import Deaths
from tests.shop import captured, pipeline
from tests.shop import merged as stream

pytestmark = pytest.mark.spark
CASES = int(os.environ.get("FUZZ_CASES", "200"))
SEED = int(os.environ.get("FUZZ_SEED", "1"))
_AT_ONCE = 25
_RUNS = 8
"""How often runs die while they merge some tables."""
_UNSHOWN = {"recreate table", "alter type using"}
"""Statements that change rows and need not change what the schemas of events show."""


def lane(number: int, share: float, *values: object, name: str) -> Any:
    """Returns a long case: seeds that no other lane has, which are a share of all cases, and other arguments."""
    begin = SEED * 100_000 + number * 10_000
    return pytest.param(range(begin, begin + max(1, round(share * CASES))), *values, marks=pytest.mark.long, id=name)


def groups(seeds: range, draw: Callable[[int], Sent], folder: Path) -> Iterator[tuple[Path, list[Sent]]]:
    """Yields the tables that are merged at a time, and a folder for them."""
    for first in range(0, len(seeds), _AT_ONCE):
        print(f"{first} of {len(seeds)} tables are merged", flush=True)
        yield folder / str(first), [draw(seed) for seed in seeds[first : first + _AT_ONCE]]


class Report:
    """What became of the tables of a lane. Failures are printed as they are found: a long lane may be ended for the
    time."""

    def __init__(self) -> None:
        self.found = Counter[str]()
        self._failures: list[str] = []

    def add(self, story: TableStory, outcome: str, failure: str = "") -> None:
        self.found[outcome] += 1
        if failure:
            self._failures.append(f"{story.name}: {failure}: {[statement.kind for statement in story.statements]}")
            print(self._failures[-1], flush=True)

    def require_no_failure(self) -> None:
        print(f"{dict(self.found)} (FUZZ_SEED={SEED} FUZZ_CASES={CASES})")
        assert not self._failures, "\n".join([*self._failures, str(dict(self.found))])


def wrong_rows(found: Mapping[str, list[Row]], sent: list[Sent], is_told: bool) -> dict[str, str]:
    """Returns table → how its rows differ from the source's, for those that do. `is_told`: values that no message tells
    may be any."""
    wrong = {}
    for story in (one.story for one in sent):
        expected = fold(story.events).values() if is_told else story.rows
        try:
            missing, excess = unmatched(expected, read_rows(found[story.name], story), story)
        except (ValueError, TypeError, AttributeError, ArithmeticError) as error:
            wrong[story.name] = f"a value has another form ({error!r}): {found[story.name]}"
        else:
            wrong |= {story.name: f"lacks {missing}, has {excess}"} if missing or excess else {}
    return wrong


def wrong_entry(entry: CatalogEntry | None, story: TableStory) -> str:
    """Returns how the catalog's entry of a table differs from what messages tell; empty if it doesn't."""
    if entry is None:
        return "" if story.table.columns == {} else "no entry"
    key = {*map(caseless, entry.table_schema.key)}
    if key != {*map(caseless, story.table.key or ())}:
        return f"the key is {key}"
    unknown = {*map(caseless, entry.table_schema.names)} - {*map(caseless, entry.lives.shown)}
    return f"no life has the columns {unknown}" if unknown else ""


@pytest.mark.parametrize(
    ("seeds", "draw"),
    [
        pytest.param(range(2), partial(told, most_windows=1), id="few"),
        lane(0, 0.45, told, name="one batch"),
        lane(1, 0.12, partial(told, most_windows=3), name="windows"),
        lane(2, 0.01, partial(told, most_windows=RECORD_BY_RECORD, shortest=6), name="record by record"),
    ],
)
def test_tables_are_those_of_the_source_where_messages_tell_all_changes(
    spark: SparkSession, tmp_path: Path, seeds: range, draw: Callable[[int], Sent]
) -> None:
    report = Report()
    for folder, sent in groups(seeds, draw, tmp_path):
        *_, tables = merged(spark, folder, sent)
        problems = wrong_rows(tables.rows([one.story for one in sent]), sent, is_told=True) | tables.faults()
        for story in (one.story for one in sent):
            problem = problems.get(story.name) or wrong_entry(tables.entry(story), story)
            report.add(story, "differs" if problem else "equal", problem)
    report.require_no_failure()


@pytest.mark.parametrize("seeds", [lane(3, 0.1, name="windows")])
def test_rows_that_late_messages_do_not_revise_are_folded_anew(
    spark: SparkSession, tmp_path: Path, seeds: range
) -> None:
    report = Report()
    for folder, sent in groups(seeds, partial(told, most_windows=3, late_changes=True), tmp_path):
        *_, tables = merged(spark, folder, sent)
        stories = [one.story for one in sent]
        before = wrong_rows(tables.rows(stories), sent, is_told=True)
        # Events whose types their message told too late wait in quarantine.
        folded = tables.fold_anew(tables.quarantined())
        problems = (wrong_rows(tables.rows(stories), sent, is_told=True) if folded else before) | tables.set_aside()
        for story in stories:
            outcome = ("differed, " if story.name in before else "equal, ") * (story.name in folded)
            problem = problems.get(story.name, "")
            report.add(story, f"{outcome}folded anew" if outcome else "differs" if problem else "equal", problem)
    report.require_no_failure()


@pytest.mark.parametrize("seeds", [lane(7, 0.03, name="windows")])
def test_runs_that_die_between_commits_give_the_tables_of_the_source(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seeds: range
) -> None:
    report, random = Report(), Random(seeds.start)
    for folder, sent in groups(seeds, partial(told, most_windows=2), tmp_path):
        with monkeypatch.context() as patched:
            deaths, left = Deaths(patched), [random.randrange(len(sent)) for _ in range(_RUNS)]
            *_, tables = merged(spark, folder, sent, partial(begin, deaths, left))
        # The run that ends a window lives, though it may have been told to die behind its last commit.
        windows = max(len(one.windows) for one in sent)
        assert (deaths.after.total() >= _RUNS - windows, tables.problems()) == (True, [])
        problems = wrong_rows(tables.rows([one.story for one in sent]), sent, is_told=True) | tables.faults()
        for story in (one.story for one in sent):
            problem = problems.get(story.name) or wrong_entry(tables.entry(story), story)
            report.add(story, "differs" if problem else "equal", problem)
    report.require_no_failure()


@pytest.mark.parametrize(
    ("seeds", "windows"),
    [
        pytest.param(range(50, 53), 1, marks=pytest.mark.long, id="few"),
        lane(4, 0.2, 1, name="one batch"),
        lane(5, 0.06, 3, name="windows"),
    ],
)
def test_tables_whose_changes_no_message_tells_are_those_of_the_source_after_a_resync(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, seeds: range, windows: int
) -> None:
    report = Report()
    for folder, sent in groups(seeds, partial(shown, most_windows=windows), tmp_path):
        before = dict[str, str]()
        for number, tables in enumerate(merged(spark, folder, sent), 1):
            if number == windows:
                before = wrong_rows(tables.rows([one.story for one in sent]), sent, is_told=False)
        problems = wrong_rows(tables.rows([one.story for one in sent]), sent, is_told=False) | tables.faults()
        for story in (one.story for one in sent):
            said = how_said(tables, story, caplog)
            failure = problems.get(story.name, "")
            if story.name in before and not said and not _UNSHOWN & {one.kind for one in story.statements}:
                failure = failure or f"not said: {before[story.name]}"
            report.add(story, f"{said} and differed" if story.name in before else "equal before", failure)
    report.require_no_failure()


def begin(deaths: Deaths, commits: list[int]) -> None:
    """Begins a run that dies after the last number of `commits`, which it removes; one that lives if there is none."""
    deaths.begin(commits.pop() if commits else sys.maxsize)


def how_said(tables: MergedTables, story: TableStory, caplog: pytest.LogCaptureFixture) -> str:
    """Returns where the log or the table's history tells that values may be unknown; empty if nothing does."""
    if any(record.getMessage().startswith(f"{story.name}:") for record in caplog.records):
        return "logged"
    entry = tables.entry(story)
    changes = () if entry is None else entry.lives.changes
    return "assumed" if any(one.origin is Origin.SEEN for one in changes) else ""


@pytest.mark.parametrize("seeds", [lane(6, 0.02, name="windows")])
def test_backfills_of_windows_in_any_order_give_the_tables_of_the_source(
    spark: SparkSession, tmp_path: Path, seeds: range
) -> None:
    """The stream takes no table, but it stores the messages."""
    report = Report()
    for folder, sent in groups(seeds, told, tmp_path):
        stories, random = [one.story for one in sent], Random(seeds.start)
        without = pipeline(folder, source={"include_tables": "nothing"})
        records = [record for one in sent for window in one.windows for record in window]
        stream(spark, without, captured(spark, without, folder, records, len(records)))
        shop = pipeline(folder)
        points = [None, *(Point(major=at) for at in sorted(random.sample(range(30, 200), 3))), None]
        for begin, end in random.sample([*pairwise(points)], len(points) - 1):
            backfill(spark, shop, BackfillRequest("bronze", begin, end))
        problems = wrong_rows(rows_of(spark, shop.layout, shop.name, stories), sent, is_told=True)
        for story in stories:
            problem = problems.get(story.name, "")
            report.add(story, "differs" if problem else "equal", problem)
    report.require_no_failure()


def backfill(spark: SparkSession, shop: Pipeline, request: BackfillRequest) -> None:
    with Backfill(spark, shop, request) as running:
        while not running.done:
            running.step()
        assert not running.set_aside
