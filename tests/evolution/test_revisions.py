"""Rows revised step by step equal those of all evidence at once, or `needs_refold` says that they don't."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import replace
from functools import cache
from random import Random

import pytest

from ingest.evolution.definition import Place, Version
from ingest.evolution.life import Lives
from ingest.evolution.lives import lives
from ingest.evolution.revisions import Refold, Source, needs_refold, revisions
from ingest.evolution.type_steps import are_lost
from ingest.testing import Event
from ingest.testing.table_versions import place_of
from ingest.testing.tables import TableStory, random_table
from ingest.values.types import Kind, LogicalType, parse
from tests.evolution import versions as defined
from tests.evolution.evidence import key_as_now, seen, told
from tests.evolution.stored_rows import Stored, read_again
from tests.evolution.test_lives_of_random_tables import OF_COLUMNS, messages
from tests.evolution.versions import INT, TEXT, column

SIMPLE = {"insert", "update", "delete", "read", *OF_COLUMNS}
Step = tuple[str, Refold | None]


@cache
def stories() -> list[TableStory]:
    """Stories without moved rows, whose columns change often."""
    found = []
    for seed in range(20):
        story = random_table(Random(seed), 22, OF_COLUMNS, keyless=False)
        found.append(story.of([each for each in story.statements if each.kind in SIMPLE]))
    return found


def steps(story: TableStory, order: list[Event], with_messages: bool) -> list[str]:
    """Merges a story's events and messages in this order and returns what became of the rows at each step."""
    all_told = lives(messages(story))
    keys: dict[Place, Hashable] = {place_of(e): key_as_now(all_told, e.key, e) for e in order if e.ddl is None}
    versions: set[Version] = set()
    now = Lives()
    merged: list[Event] = []
    stored = Stored(keys)
    found = []
    for event in order:
        before = now
        if event.ddl is None:
            versions.add(seen(event, story.mode))
        elif with_messages:
            versions.add(told(event, story, typed=len(versions) % 2 == 0))
        now = lives(versions)
        through = max(map(place_of, merged), default=())
        lost = stored.is_lost(needs_refold(before, now, through))
        assert not lost or stored.is_lost(needs_refold(before, now))
        if lost:
            stored = read_again(merged, now, keys)
        elif now != before:
            stored.revise(before, now)
        found.append("refold" if lost else "revise" if now != before else "none")
        if event.ddl is None:
            merged.append(event)
            stored.merge(event, now)
        if found[-1] != "none" or event is order[-1]:
            assert stored.shown() == read_again(merged, now, keys).shown(), (found, event)
    return found


def without_nulls(story: TableStory) -> list[Event]:
    return [event for event in story.events if event.op != "null"]


def test_changes_told_in_the_order_of_the_source_never_read_events_again() -> None:
    found = Counter[str]()
    for story in stories():
        found.update(steps(story, without_nulls(story), with_messages=True))
    assert found["refold"] == 0
    assert found["revise"] > 80


@pytest.mark.parametrize("with_messages", [True, False])
def test_rows_are_a_function_of_the_evidence(with_messages: bool) -> None:
    found = Counter[str]()
    for seed, story in enumerate(stories()):
        events = without_nulls(story)
        order = Random(seed).sample(events, len(events))
        found.update(steps(story, order, with_messages))
    assert min(found["revise"], found["none"]) > 40, found
    assert found["refold"] > 10 or not with_messages, found


@pytest.mark.parametrize(("type_", "name"), [(INT, "integer"), (LogicalType(Kind.UUID), "uuid")])
def test_no_value_is_lost_where_an_event_shows_a_type_before_its_message(type_: LogicalType, name: str) -> None:
    first = defined.told(10, replace(column("n", 1, type_=type_), source_type=name))
    event = defined.seen(90, column("n", type_=TEXT))
    message = defined.told(30, replace(column("n", 1, type_=TEXT), source_type="text"))
    (revision,) = revisions(lives({first, event}), lives({first, event, message}))
    assert [piece for piece in revision.pieces if are_lost(piece.types)] == []
    assert {piece.source for piece in revision.pieces} == {Source.STORED}


@pytest.mark.parametrize(
    ("shown", "by_recipe", "name"),
    [
        ("interval_micros", "interval_iso", "interval"),
        ("string", "decimal(10,2)", "numeric(10,2)"),
        ("float64", "decimal_text", "numeric"),
        ("array<string>", "array<bytes>", "bytea[]"),
    ],
)
def test_first_message_does_not_change_a_type_that_events_show_in_another_form(
    shown: str, by_recipe: str, name: str
) -> None:
    event = defined.seen(10, column("n", type_=parse(shown)))
    message = defined.told(50, replace(column("n", 1, type_=parse(by_recipe)), source_type=name))
    now = lives({event, message})
    assert [step.type for step in now.shown["n"].types] == [parse(shown)]
    assert [one.change for one in now.changes] == []
    assert needs_refold(lives({event}), now) is None


def test_rows_are_folded_again_if_a_key_column_turns_out_to_have_another_name() -> None:
    events = {defined.seen(10, "id", "n"), defined.seen(90, "k", "n")}
    first = defined.told(5, column("id", 1), column("n", 2), key=("id",))
    renamed = defined.told(50, column("k", 1), column("n", 2), key=("k",))
    before, after = lives(events), lives({*events, first, renamed})
    refold = needs_refold(before, after, defined.at(95))
    assert refold is not None
    assert [one.begin for one in refold.ranges if one.is_of_keys] == [defined.at(90)]
    assert needs_refold(before, after, defined.at(40)) is None
