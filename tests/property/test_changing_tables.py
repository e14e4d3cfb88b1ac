"""Random tables whose columns are added, dropped and added again, without messages of the DDL: in every delivery, by
any batches, the rows are those of the reference, which folds what the schemas of events show. With messages the rows
are those of the source, after every change of columns."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ingest.backfill.replay import Case, Delivery, replay
from ingest.evolution.ddl_version import ddl_version
from ingest.evolution.definition import FillKind
from ingest.testing import Event, SourceColumn, SourceTable, assumed, fold, parse_events, without_ddl
from ingest.testing.ddl_messages import message_content
from ingest.testing.table_deliveries import Record, delivered, interleaved
from ingest.testing.table_records import as_debezium, read_rows, unmatched
from ingest.testing.table_versions import place_of
from ingest.testing.tables import CHANGES as ALL_CHANGES
from ingest.testing.tables import DefinitionStatement, Statement, TableStory, random_table
from tests.changelogs import write

pytestmark = pytest.mark.spark
CASES = int(os.environ.get("FUZZ_CASES", "200")) // 20
SEED = int(os.environ.get("FUZZ_SEED", "4"))
LANES = [
    (min(CASES, 4), 1),
    *(pytest.param(CASES, batches, marks=pytest.mark.long) for batches in (1, 6)),
]
"""Numbers of tables, and of batches in which they are merged."""
CHANGES: tuple[DefinitionStatement, ...] = ("add column", "add column", "drop column", "alter default")
TOLD: tuple[DefinitionStatement, ...] = tuple(change for change in ALL_CHANGES if change != "alter key")
SHOWN_OF_BAGS: tuple[DefinitionStatement, ...] = ("add column", "drop column", "alter type")
TYPES = {"no": "integer", "id": "integer", "r": "integer", "b": "integer", "a": "integer", "v": "text"}
KNOWN = (
    "+a:int=5@20 -a@40 c1@40(1,1) c2@45(2,1) c3@10(3,1) c4@80(4,1) c5@20(5,1,7) c6@15(6,1)",
    "+a:int=5@5 -a@20 +a:int=6@30 c1@10(1,1,7) c2@40(2,1,8) c3@25(3,1)",
    "+a:int=5@20 -a@40 +a:int=6@60 c1@10(1,1) c4@70(4,1,3) c2@30(2,1,2) c3@50(3,1) c5@35(5,1,4) u4@45(4,2) c6@15(6,1)",
)
"""Changelogs of columns `id`, `b` and `a` in their order of delivery, of which two events are merged at a time."""
AGREES: tuple[list[Any], ...] = ([], [])


def stories(random: Random) -> Iterator[TableStory]:
    """Yields keyed tables whose columns change at least twice."""
    for number in count():
        name = f"public.t{number}"
        story = random_table(random, random.choice((12, 25)), CHANGES, name, keyless=False)
        if changes_twice(story):
            yield story


def is_told(story: TableStory) -> bool:
    """Returns whether messages tell all fills of a story; those of types that only events show are unknown."""
    changes = [(event, event.ddl) for event in story.events if event.ddl is not None and event.ddl.to is not None]
    fills = {
        (c.name, c.fill.kind)
        for event, change in changes
        for c in ddl_version(message_content(story, event), place_of(event))[1].definition.columns
        if change.kind == "add.column" and change.to is not None and change.to.missing is not None
        if c.name == change.column
    }
    return all(kind is FillKind.CONSTANT for _, kind in fills)


def told_stories(random: Random) -> Iterator[TableStory]:
    """Yields keyed tables that change at least twice."""
    for number in count():
        story = random_table(random, random.choice((12, 25)), TOLD, f"public.t{number}", keyless=False)
        if changes_twice(story) and is_told(story):
            yield story


def bags(random: Random) -> Iterator[TableStory]:
    """Yields tables without a key that change at least twice. An insert follows each change, so that events show it."""
    for number in count():
        story = random_table(random, random.choice((12, 25)), SHOWN_OF_BAGS, f"public.t{number}", keyless=True)
        shown = (
            each
            for statement in story.statements
            for each in (statement, Statement("insert", statement.seed))[: 1 + (statement.kind in SHOWN_OF_BAGS)]
        )
        story = story.of([*shown])
        if changes_twice(story):
            yield story


def told_bags(random: Random) -> Iterator[TableStory]:
    """Yields tables without a key that change at least twice."""
    for number in count():
        story = random_table(random, random.choice((12, 25)), TOLD, f"public.t{number}", keyless=True)
        if changes_twice(story) and is_told(story):
            yield story


def changes_twice(story: TableStory) -> bool:
    return sum(event.ddl is not None for event in story.events) > 2


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
    told: bool = False,
    disordered_bags: bool = False,
) -> None:
    """Merges `cases` tables of `draw` in a random delivery. Fails where their rows differ from the reference's. `told`:
    with the messages of the DDL, each before the events that follow it. `disordered_bags`: as of `delivered`."""
    random = Random(seed)
    tables = [*islice(draw(random), cases)]
    every = [delivered(story, random, disordered_bags=disordered_bags) for story in tables]
    sent = every if told else [*map(without_ddl, every)]
    records = interleaved(records_of(tables, sent), random)
    check_merged(spark, folder, tables, sent, records, 0 if batches == 1 else len(records) // batches + 1, seed)


def records_of(tables: Sequence[TableStory], sent: Sequence[Sequence[Event]]) -> list[list[Record]]:
    """Returns the records of each table, of a server of its own: relations of different databases may have one oid."""
    pairs = enumerate(zip(tables, sent, strict=True))
    return [as_debezium(story, events, server=f"srv{number}") for number, (story, events) in pairs]


def check_merged(
    spark: SparkSession,
    folder: Path,
    tables: Sequence[TableStory],
    sent: Sequence[Sequence[Event]],
    records: list[Record],
    batch_size: int,
    seed: int = 0,
) -> None:
    """Merges the records of `tables`. Fails where their rows differ from the reference's. `sent`: their events."""
    case = Case("changing", (write(folder / "in", records, None) / "events.jsonl",), None, folder / "out")
    ((_, summary),) = replay(spark, [case], Delivery(batch_size), "jsonl")
    assert (summary["set_aside"], summary["quarantine"]) == ({}, [])
    for story, events in zip(tables, sent, strict=True):
        has_messages = any(event.ddl is not None for event in events)
        # Without a key an event that comes twice counts once.
        once = without_ddl(story.events) if story.has_bags else events
        expected = fold(story.events if has_messages else assumed(once)).values()
        found = read_table(folder / "out", summary, story)
        assert unmatched(expected, found, story) == AGREES, (story.name, seed, story.statements)


def check_in_turns(
    spark: SparkSession, folder: Path, tables: Sequence[TableStory], sent: Sequence[Sequence[Event]], turn: int = 1
) -> None:
    """Merges `turn` events of each table at a time. Fails as `check_merged`. The last event of a table is delivered
    again until all tables are through."""
    longest = max(map(len, sent))
    sent = [[*events, *[events[-1]] * (longest - len(events))] for events in sent]
    sent = [[replace(event, offset=offset) for offset, event in enumerate(events)] for events in sent]
    turns = zip(*records_of(tables, sent), strict=True)
    records = [record | {"offset": offset} for offset, one in enumerate(turns) for record in one]
    check_merged(spark, folder, tables, sent, records, turn * len(tables))


def known_story(number: int, start: SourceTable, line: str) -> TableStory:
    """Returns a table whose columns are integers, but for `v`, and whose changelog is `line`."""
    events = []
    for event in parse_events(line, [*start.columns], start.key):
        carried = event.carried or start
        columns = {name: SourceColumn(TYPES[name], 0, c.default) for name, c in carried.columns.items()}
        events.append(replace(event, carried=event.carried and SourceTable(columns, carried.key)))
    end = max((e for e in events if e.carried is not None), key=lambda event: event.lsn).carried
    assert end is not None
    return TableStory(f"public.k{number}", "adaptive", True, start, (), None, tuple(events), end, ())


@pytest.mark.long
def test_known_changelogs_are_what_the_schemas_of_their_events_show(spark: SparkSession, tmp_path: Path) -> None:
    start = SourceTable({"id": SourceColumn(), "b": SourceColumn()}, ("id",))
    tables = [known_story(number, start, line) for number, line in enumerate(KNOWN)]
    check_in_turns(spark, tmp_path, tables, [without_ddl(story.events) for story in tables], turn=2)


@pytest.mark.parametrize(("cases", "batches"), LANES)
def test_tables_are_what_the_schemas_of_their_events_show(
    spark: SparkSession, tmp_path: Path, cases: int, batches: int
) -> None:
    check_rows(spark, tmp_path, stories, SEED, cases, batches)


@pytest.mark.parametrize(("cases", "batches"), LANES)
def test_tables_are_those_of_the_source_where_messages_tell_every_change(
    spark: SparkSession, tmp_path: Path, cases: int, batches: int
) -> None:
    check_rows(spark, tmp_path, told_stories, SEED + 1, cases, batches, told=True)


@pytest.mark.long
@pytest.mark.parametrize("batches", [1, 6])
@pytest.mark.parametrize(("told", "draw"), [(False, bags), (True, told_bags)])
def test_tables_without_a_key_are_those_of_the_source(
    spark: SparkSession,
    tmp_path: Path,
    told: bool,
    draw: Callable[[Random], Iterator[TableStory]],
    batches: int,
) -> None:
    check_rows(spark, tmp_path, draw, SEED + 2, CASES, batches, told)
