"""Rows of tables whose key changes: an event that carries a key makes every older image with equal key columns
obsolete."""

from __future__ import annotations

from collections.abc import Hashable
from random import Random

from ingest.evolution.definition import Place, is_at_or_above
from ingest.evolution.life import Life, Lives
from ingest.evolution.lives import lives
from ingest.evolution.readings import Means, means
from ingest.testing import Event, SourceTable, fold
from ingest.testing.oracle import Row
from ingest.testing.table_versions import place_of
from ingest.testing.tables import TableStory, random_table
from tests.evolution.evidence import converted, filled, key_as_now
from tests.evolution.test_lives_of_random_tables import messages, shown_rows

Key = tuple[frozenset[tuple[int, object]], Place]


def value_as_now(now: Lives, life: Life, event: Event) -> object:
    """Returns the value of a life, shown or not, in an event's image."""
    at = place_of(event)
    match means(now, life, at):
        case Means.VALUE:
            return converted(event.image[life.name(at)], life.later_types(at)[1:])
        case Means.FILL:
            return converted(filled(life.fill), life.types[1:])
        case _:
            return None


def facts(now: Lives, event: Event) -> list[Key]:
    """Returns the keys that an event carries, with values of their newest types, and its position."""
    era = now.key_at(place_of(event))
    names = (event.carried or SourceTable()).key or ()
    found = []
    for key in (event.key, event.old_key):
        if key is not None and era is not None:
            value = key_as_now(now, key, event)
            values = value if len(names) > 1 and isinstance(value, tuple) else (value,)
            by_name = dict(zip(names, values, strict=True))
            found.append(
                (frozenset((n, by_name[now.columns[n].name(place_of(event))]) for n in era.lives), place_of(event))
            )
    return found


def rows_of(events: list[Event], now: Lives) -> dict[Hashable, Row]:
    kept = [e for e in events if e.ddl is None and e.op != "null" and is_at_or_above(place_of(e), now.begin)]
    known = [fact for event in kept for fact in facts(now, event)]
    truncated = max((place_of(event) for event in kept if event.op == "t"), default=())
    found: dict[Hashable, tuple[Place, Row]] = {}
    for event in kept:
        if event.op not in ("c", "u", "r") or place_of(event) < truncated:
            continue
        image = {n: value_as_now(now, life, event) for n, life in enumerate(now.columns)}
        if any(at > place_of(event) and all(image[n] == value for n, value in key) for key, at in known):
            continue
        key = tuple(image[n] for n in now.keys[-1].lives)
        row = {column: image[now.columns.index(life)] for column, life in now.shown.items()}
        found[key] = max(found.get(key, ((), {})), (place_of(event), row), key=lambda one: one[0])
    return {key: row for key, (_, row) in found.items()}


def whole_stories() -> list[TableStory]:
    drawn = (random_table(Random(seed), keyless=False) for seed in range(150))
    whole = (story.of(story.statements) for story in drawn if story.full and not story.has_bags)
    return [story for story in whole if len({e.carried.key for e in story.events if e.carried}) > 1]


def test_the_newest_image_of_each_row_is_not_obsolete() -> None:
    stories = whole_stories()
    assert len(stories) > 10
    for story in stories:
        now = lives(messages(story))
        should = shown_rows(fold(story.events), now)
        found = rows_of(Random(1).sample(story.events, len(story.events)), now)
        assert sorted(map(repr, shown_rows(found, now).values())) == sorted(map(repr, should.values()))
