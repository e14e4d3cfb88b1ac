"""Random tables whose columns are added, dropped and added again, without messages of the DDL: in every delivery, by
any batches, the rows are those of the reference, which folds what the schemas of events show."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ingest.backfill.replay import Case, Delivery, replay
from ingest.testing import Event, assumed, fold, without_ddl
from ingest.testing.table_deliveries import delivered, interleaved
from ingest.testing.table_records import as_debezium, read_rows, unmatched
from ingest.testing.tables import DefinitionStatement, TableStory, random_table
from tests.changelogs import write

pytestmark = pytest.mark.spark
CASES = int(os.environ.get("FUZZ_CASES", "200")) // 20
SEED = int(os.environ.get("FUZZ_SEED", "4"))
CHANGES: tuple[DefinitionStatement, ...] = ("add column", "add column", "drop column", "alter default")
AGREES: tuple[list[Any], ...] = ([], [])


def stories(random: Random) -> Iterator[TableStory]:
    """Yields keyed tables whose columns change at least twice."""
    for number in count():
        name = f"public.t{number}"
        story = random_table(random, random.choice((12, 25)), CHANGES, name, keyless=False)
        if sum(event.ddl is not None for event in story.events) > 2:
            yield story


def schema_events(story: TableStory, random: Random) -> list[Event]:
    return without_ddl(delivered(story, random))


def read_table(folder: Path, summary: dict[str, Any], story: TableStory) -> list[dict[str, Any]]:
    found = summary["tables"].get(story.name)
    lines = (folder / found["file"]).read_text(encoding="utf-8").splitlines() if found else []
    return read_rows([json.loads(line) for line in lines], story)


def check_rows(
    spark: SparkSession,
    folder: Path,
    draw: Callable[[Random], Iterator[TableStory]],
    seed: int,
    cases: int,
    batches: int,
) -> None:
    """Merges `cases` tables of `draw` in a random delivery. Fails where their rows differ from the reference's."""
    random = Random(seed)
    tables = [*islice(draw(random), cases)]
    sent = [schema_events(story, random) for story in tables]
    records = interleaved(
        [as_debezium(story, events, trigger=False) for story, events in zip(tables, sent, strict=True)], random
    )
    case = Case("changing", (write(folder / "in", records, None) / "events.jsonl",), None, folder / "out")
    size = 0 if batches == 1 else len(records) // batches + 1
    ((_, summary),) = replay(spark, [case], Delivery(batch_size=size), "jsonl")
    assert (summary["set_aside"], summary["quarantine"]) == ({}, [])
    for story, events in zip(tables, sent, strict=True):
        expected = fold(assumed(events)).values()
        found = read_table(folder / "out", summary, story)
        assert unmatched(expected, found, story) == AGREES, (story.name, seed, story.statements)


@pytest.mark.parametrize("batches", [1, pytest.param(5, marks=pytest.mark.long)])
def test_tables_are_what_the_schemas_of_their_events_show(spark: SparkSession, tmp_path: Path, batches: int) -> None:
    check_rows(spark, tmp_path, stories, SEED, CASES, batches)
