"""Lives of random tables: every value belongs to the life of its column at its own position, which gives the rows that
the reference has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from functools import cache
from random import Random

import pytest

from ingest.evolution.definition import FillKind, Version
from ingest.evolution.life import Lives
from ingest.evolution.lives import lives
from ingest.testing import Event, assumed, fold, without_ddl
from ingest.testing.assumed import lagging
from ingest.testing.oracle import Row
from ingest.testing.table_versions import place_of, seen_versions, told_versions
from ingest.testing.tables import CHANGES, TableStory, random_table
from tests.evolution.evidence import rows_of, seen, told

OF_COLUMNS = tuple(change for change in CHANGES if change != "alter key")


@cache
def stories() -> list[TableStory]:
    return [random_table(Random(seed), changes=OF_COLUMNS, keyless=False) for seed in range(60)]


@cache
def all_stories() -> list[TableStory]:
    return [random_table(Random(seed), keyless=False) for seed in range(50)]


def messages(story: TableStory, typed: bool = True) -> list[Version]:
    return [told(event, story, typed) for event in story.events if event.ddl is not None]


def schemas(story: TableStory, events: list[Event]) -> list[Version]:
    return [seen(event, story.mode) for event in events if event.ddl is None and event.op != "null"]


def shown_rows(rows: dict[Hashable, Row], now: Lives) -> dict[Hashable, Row]:
    return {key: {column: row.get(column) for column in now.shown} for key, row in rows.items()}


def test_told_versions_give_the_rows_of_the_source() -> None:
    for seed, story in enumerate(stories()):
        now = lives(messages(story))
        assert shown_rows(rows_of(story.events, now), now) == shown_rows(fold(story.events), now), seed
        alive = {life.column: life.number for life in now.shown.values() if life.end is None}
        assert alive == {name: column.number for name, column in story.table.columns.items()}


def test_schemas_of_events_give_the_rows_that_they_show() -> None:
    compared = 0
    for seed, story in enumerate(stories()):
        events = without_ddl(story.events)
        shown = assumed(events)
        if any(event.ddl is not None and event.ddl.kind == "alter.key" for event in shown):
            continue  # a renamed key column looks like another key
        try:
            should = fold(shown)
        except ValueError:
            continue  # the source would have refused the conversion that schemas seem to show
        now = lives(schemas(story, events))
        assert shown_rows(rows_of(events, now), now) == shown_rows(should, now), seed
        compared += 1
    assert compared > 15


def test_told_versions_win_over_those_that_events_show() -> None:
    for seed, story in enumerate(stories()[:20]):
        shown = schemas(story, lagging(story.events, Random(seed).choice((0, 1, 2))))
        now = lives([*messages(story, typed=False), *Random(seed).sample(shown, len(shown) // 2)])
        assert shown_rows(rows_of(story.events, now), now) == shown_rows(fold(story.events), now), seed


def test_what_events_show_only_adds_types_to_what_is_told() -> None:
    learned = 0
    for story in stories():
        implied = lives(messages(story))
        shown = lives([*messages(story, typed=False), *schemas(story, [*story.events])])
        assert [(life.column, life.begin, life.end) for life in shown.columns] == [
            (life.column, life.begin, life.end) for life in implied.columns
        ]
        for one, other in zip(shown.columns, implied.columns, strict=True):
            assert [step.source_type for step in one.types] == [step.source_type for step in other.types]
            for step, implied_step in zip(one.types, other.types, strict=True):
                assert step.type == (implied_step.type if step.is_shown else None)
                learned += step.is_shown
    assert learned > 150


@pytest.mark.parametrize("with_messages", [True, False])
def test_lives_are_a_function_of_the_set_of_versions(with_messages: bool) -> None:
    for seed, story in enumerate(all_stories()[:12]):
        random = Random(seed)
        versions = [*(messages(story) if with_messages else []), *schemas(story, [*story.events])]
        now = lives(versions)
        for _ in range(2):
            parts = [random.sample(versions, random.randint(0, len(versions))) for _ in range(3)]
            union = {version for part in [*parts, versions] for version in part}
            assert lives(union) == now
            assert lives(random.sample(versions, len(versions))) == now


def test_versions_that_are_shipped_with_the_random_tables_give_the_same_lives() -> None:
    for story in all_stories():
        told_lives, seen_lives = lives(told_versions(story)), lives(seen_versions(story))
        assert bounds(told_lives) == bounds(lives(messages(story)))
        assert bounds(seen_lives) == bounds(lives(schemas(story, [e for e in story.events if e.op != "t"])))


def bounds(now: Lives) -> list[tuple[object, ...]]:
    return [(life.column, life.number, life.begin, life.end, life.fill.kind) for life in now.columns]


def test_first_and_last_versions_of_a_run_suffice() -> None:
    for story in all_stories():
        versions = sorted(schemas(story, [*story.events]), key=lambda version: version.since)
        definitions = [None, *(version.definition for version in versions), None]
        ends = [
            version
            for n, version in enumerate(versions, 1)
            if not definitions[n - 1] == definitions[n] == definitions[n + 1]
        ]
        assert lives(ends) == lives(versions)


def test_a_key_is_in_force_where_events_carry_it() -> None:
    eras = Counter[int]()
    for story in all_stories():
        for versions in (messages(story), schemas(story, [*story.events])):
            now = lives(versions)
            eras[len(now.keys)] += 1
            for event in story.events:
                if event.op not in ("null", "ddl") and event.carried is not None and event.carried.key is not None:
                    assert {*(now.key_names(place_of(event)) or ())} == {*event.carried.key}
    assert sum(number for count, number in eras.items() if count > 1) > 15


def test_everything_occurs() -> None:
    found = Counter[str]()
    for story in all_stories():
        now = lives(messages(story))
        found.update(placed.change.kind for placed in now.changes)
        found["gone and not back"] += any(life.end is not None for life in now.shown.values())
        found["gone and back"] += len(now.shown) < len(now.columns)
        found["filled"] += any(life.fill.kind is FillKind.CONSTANT for life in now.columns)
        found["unknown"] += any(life.fill.kind is FillKind.UNKNOWN for life in now.columns)
        found["computed"] += any(step.is_unknown for life in now.columns for step in life.types)
        found["dropped"] += now.begin is not None
    kinds = {"add.column", "drop.column", "rename.column", "alter.column.type", "alter.key", "create.table"}
    assert kinds <= found.keys()
    assert min(found.values()) > 3, found
