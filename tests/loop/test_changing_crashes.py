"""Random tables whose columns and keys change, with messages of the DDL and without, merged by runs that die at every
commit, those of a change's revision included: once all is merged, the rows are those of the reference, and every event
is accounted for once."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ingest.batches.rules import Rules
from ingest.changelog.change import quoted
from ingest.lakehouse.accounts import Accounts
from ingest.lakehouse.bronze import Bronze
from ingest.lakehouse.catalog import Catalog
from ingest.lakehouse.silver import Silver
from ingest.loop.capture import Capture
from ingest.loop.merge import Merge
from ingest.names import Lakehouse
from ingest.quality.accounting import audit
from ingest.sources.files import FileSource, lines
from ingest.testing import assumed, fold, without_ddl
from ingest.testing.table_deliveries import Record, delivered, interleaved
from ingest.testing.table_records import read_rows, unmatched
from ingest.testing.tables import TableStory
from ingest.values.render import json_object, rendered
from tests.altered.tables import keyed_table
from tests.changelogs import write
from tests.deaths import Deaths, Died
from tests.property import test_changing_keys, test_changing_tables
from tests.property.test_changing_tables import is_told, records_of, schema_events

pytestmark = pytest.mark.spark
CASES = int(os.environ.get("FUZZ_CASES", "200")) // 25
SEED = int(os.environ.get("FUZZ_SEED", "3"))
PIPELINE = "crash"
_RUNS_WITH_ONE_COMMIT = 20


def stories(random: Random) -> Iterator[TableStory]:
    """Yields tables whose columns change, whose key changes, and that lose their key, in turn."""
    changing, rekeyed = test_changing_tables.stories(random), test_changing_keys.stories(random)
    drawn = (changing, rekeyed, test_changing_keys.stories_of_lost_keys(random))
    for number in count():
        yield replace(next(drawn[number % len(drawn)]), name=f"public.t{number}")


def told_stories(random: Random) -> Iterator[TableStory]:
    """Yields tables under all changes of their definitions, whose messages tell all fills."""
    return (keyed_table(number, random, is_told) for number in count())


def run_until_merged(spark: SparkSession, layout: Lakehouse, file: Path, size: int, deaths: Deaths) -> None:
    """Runs until all is merged. Each run makes one commit, or more where one is not enough to end a slice."""
    runs, merged = 0, 0
    while True:
        deaths.begin(max(1, runs - _RUNS_WITH_ONE_COMMIT))
        bronze, rules = Bronze(spark, layout.bronze(PIPELINE)), Rules()
        merge = Merge(spark, PIPELINE, layout, rules, bronze, slice_events=1)
        runs, merged = (runs + 1 if merge.merged == merged else 0), merge.merged
        try:
            capture = Capture(spark, FileSource(list(lines([file]))), bronze, rules.naming, size)
            while capture.step():
                merge.step(capture.captured.batch)
            while merge.step():
                pass
        except Died:
            continue
        else:
            return
        finally:
            merge.close()


def rows_of(spark: SparkSession, layout: Lakehouse, story: TableStory) -> list[dict[str, Any]]:
    columns = Catalog(spark, layout.tables).entry(PIPELINE, story.name).table_schema.columns
    texts = json_object({column.name: rendered(quoted(column.name), column.type) for column in columns})
    rows = Silver(spark, layout.silver(PIPELINE, story.name)).rows().select(texts).collect()
    return read_rows([json.loads(row[0]) for row in rows], story)


@pytest.mark.long
@pytest.mark.parametrize(
    ("told", "draw", "tables", "batches"),
    [
        (False, stories, 2, 2),
        (False, stories, CASES, 4),
        (False, test_changing_tables.bags, CASES // 2, 2),
        (True, told_stories, CASES, 3),
    ],
)
def test_runs_that_die_between_any_commits_give_the_rows_of_one_run(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    told: bool,
    draw: Callable[[Random], Iterator[TableStory]],
    tables: int,
    batches: int,
) -> None:
    random = Random(SEED)
    drawn = [*islice(draw(random), tables)]
    sent = [delivered(story, random) if told else schema_events(story, random) for story in drawn]
    records: list[Record] = interleaved(records_of(drawn, sent), random)
    file = write(tmp_path / "in", records, None) / "events.jsonl"
    layout = Lakehouse(str(tmp_path / "lakehouse"))
    with monkeypatch.context() as patched:
        deaths = Deaths(patched)
        run_until_merged(spark, layout, file, len(records) // batches + 1, deaths)
    died = f"{deaths.after.total()} runs died, {deaths.after[layout.tables]} of them after a revision"
    print(f"{died} (FUZZ_SEED={SEED} FUZZ_CASES={CASES * 25})")
    assert deaths.after[layout.tables] > tables
    for story, events in zip(drawn, sent, strict=True):
        found = rows_of(spark, layout, story)
        once = without_ddl(story.events) if story.has_bags else events
        expected = fold(story.events if told else assumed(once)).values()
        assert unmatched(expected, found, story) == ([], []), (story.name, SEED, story.statements)
    bronze = Bronze(spark, layout.bronze(PIPELINE)).rows()
    accounted = audit(bronze, Accounts(spark, layout.accounts, PIPELINE).rows())
    assert (accounted.problems, accounted.merged, accounted.waiting) == ([], len(records), 0)
