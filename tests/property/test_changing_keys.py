"""Random tables whose primary key changes, without messages of the DDL: in every delivery, by any batches, the rows are
those of the reference, which folds what the keys of records show. With messages they are those of the source."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count, groupby
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from ingest.testing import SourceColumn, SourceTable, without_ddl
from ingest.testing.tables import Statement, TableStory, interpret, random_definition
from tests.property.test_changing_tables import check_in_turns, check_rows, known_story

pytestmark = pytest.mark.spark
CASES = int(os.environ.get("FUZZ_CASES", "200")) // 40
SEED = int(os.environ.get("FUZZ_SEED", "12"))
LANES = [
    (min(CASES, 3), 1),
    *(pytest.param(CASES, batches, marks=pytest.mark.long) for batches in (1, 6)),
]
"""Numbers of tables, and of batches in which they are merged."""
STATEMENTS = ("insert", "insert", "insert", "update", "update", "move", "delete", "alter key", "alter key")
BEFORE_A_KEY = ("insert", "insert", "insert", "update", "update", "delete", "alter key")
AFTER_A_KEY = ("insert", "update", "delete", "insert", "update")

KNOWN = (
    (("id", "r"), "c1,7@10(1,7,a) c1,8@20(1,8,b) #id@30 c2@40(2,7,c)"),
    (("id", "r"), "c1,7@10(1,7,a) c1,8@20(1,8,b) #id@30 c2@40(2,7,c) d1,8@25"),
    (("id",), "c1@10(1,7,a) u1@20(1,7,b) #r@30 c8@40(2,8,c) u1@15(1,9,d)"),
    (("id",), "c1@10(1,7,a) #r@30 c8@40(2,8,b) d1@25 u1@20(1,9,c)"),
    (("id",), "c1@10(1,7,a) #r@20 u7@30(1,7,b) #id@40 u1@50(1,8,c) u7@25(1,7,d) c2@60(2,7,e)"),
    (("id",), "c1@10(1,7,a) #id,r@20 c1,8@30(1,8,b) d1,7@40 #r@50 u8@60(1,8,c) u2@5(2,8,d)"),
    (("id",), "c1@10(1,7,a) c2@20(2,8,b) c4@25(4,9,d) id>no@30 c3@40(3,9,c) d1@28 u2@15(2,9,d) u3@50(3,9,e)"),
)
"""A key and a changelog of columns `id`, `r` and `v` in its order of delivery."""


def stories(random: Random) -> Iterator[TableStory]:
    """Yields tables with two keys or more, and whole images: a partial image of an older key is refused."""
    for number in count():
        start = random_definition(random, "adaptive", keyless=False)
        kinds = ["insert", "insert", *random.choices(STATEMENTS, k=random.choice((8, 20)))]
        drawn = [Statement(kind, random.getrandbits(32)) for kind in kinds]  # type: ignore[arg-type]
        story = interpret(start, drawn, f"public.t{number}", full=True)
        keys = {event.carried.key for event in story.events if event.carried is not None and event.ddl is None}
        if len(keys) > 1 and () not in keys:
            yield story


def stories_of_new_keys(random: Random) -> Iterator[TableStory]:
    """Yields tables that have no key first, and then one."""
    for number in count():
        start = random_definition(random, "adaptive", keyless=True)
        kinds = ["insert", "insert", *random.choices(BEFORE_A_KEY, k=random.choice((8, 20)))]
        drawn = [Statement(kind, random.getrandbits(32)) for kind in kinds]  # type: ignore[arg-type]
        story = interpret(start, drawn, f"public.t{number}", full=True)
        keys = [key for key, _ in groupby(sent_keys(story))]
        if len(keys) == 2 and not keys[0]:
            yield story


def stories_of_lost_keys(random: Random) -> Iterator[TableStory]:
    """Yields tables that lose their key for good."""
    for number in count():
        start = random_definition(random, "adaptive", keyless=False)
        kinds = ["insert", "insert", *random.choices(BEFORE_A_KEY, k=random.choice((8, 20)))]
        drawn = [Statement(kind, random.getrandbits(32)) for kind in [*kinds, *AFTER_A_KEY]]  # type: ignore[arg-type]
        story = interpret(start, drawn, f"public.t{number}", full=True)
        keys = [key for key, _ in groupby(sent_keys(story))]
        if len(keys) > 1 and keys[-1] == () and () not in keys[:-1]:
            yield story


def sent_keys(story: TableStory) -> list[tuple[str, ...] | None]:
    return [event.carried.key for event in story.events if event.carried is not None and event.ddl is None]


@pytest.mark.long
def test_known_changelogs_are_what_the_keys_of_their_events_show(spark: SparkSession, tmp_path: Path) -> None:
    starts = [SourceTable({name: SourceColumn() for name in ("id", "r", "v")}, key) for key, _ in KNOWN]
    tables = [known_story(n, start, line) for n, (start, (_, line)) in enumerate(zip(starts, KNOWN, strict=True))]
    check_in_turns(spark, tmp_path, tables, [without_ddl(story.events) for story in tables])


@pytest.mark.parametrize(("cases", "batches"), LANES)
def test_tables_are_what_the_keys_of_their_events_show(
    spark: SparkSession, tmp_path: Path, cases: int, batches: int
) -> None:
    check_rows(spark, tmp_path, stories, SEED, cases, batches)


@pytest.mark.long
@pytest.mark.parametrize(("cases", "batches"), LANES)
def test_tables_that_get_a_key_are_what_their_events_show(
    spark: SparkSession, tmp_path: Path, cases: int, batches: int
) -> None:
    check_rows(spark, tmp_path, stories_of_new_keys, SEED, cases, batches)


@pytest.mark.long
@pytest.mark.parametrize(("cases", "batches"), LANES)
def test_tables_are_those_of_the_source_where_messages_tell_the_keys(
    spark: SparkSession, tmp_path: Path, cases: int, batches: int
) -> None:
    check_rows(spark, tmp_path, stories, SEED + 1, cases, batches, told=True)


@pytest.mark.long
@pytest.mark.parametrize(("batches", "told"), [(1, False), (6, False), (1, True), (6, True)])
def test_tables_that_lose_their_key_are_what_their_events_show(
    spark: SparkSession, tmp_path: Path, batches: int, told: bool
) -> None:
    check_rows(spark, tmp_path, stories_of_lost_keys, SEED, CASES, batches, told)


@pytest.mark.long
@pytest.mark.parametrize(("batches", "told"), [(6, False), (1, False), (1, True), (6, True)])
def test_events_of_tables_that_lose_their_key_may_come_in_any_order(
    spark: SparkSession, tmp_path: Path, batches: int, told: bool
) -> None:
    check_rows(spark, tmp_path, stories_of_lost_keys, SEED + 2, CASES, batches, told, disordered_bags=True)
