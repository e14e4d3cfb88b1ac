"""A range holds the messages from before its events, whatever its limit."""

from __future__ import annotations

import pytest

from ingest.sources.contract import Offsets
from ingest.sources.offset_ranges import limited, messages_first

ENDS: Offsets = {"s.message": {0: 30}, "s.public.a": {0: 1000, 1: 500}, "s.public.b": {0: 500}}
STARTS: Offsets = {topic: dict.fromkeys(partitions, 0) for topic, partitions in ENDS.items()}


def test_messages_are_not_limited_with_the_events() -> None:
    found = messages_first(STARTS, ENDS, {"s.message"}, 130)
    assert found is not None
    assert found.end == {"s.message": {0: 30}, "s.public.a": {0: 50, 1: 25}, "s.public.b": {0: 25}}
    assert (found.size, found.behind) == (130, 1900)


def test_more_messages_than_the_limit_come_before_any_event() -> None:
    found = messages_first(STARTS, ENDS, {"s.message"}, 20)
    assert found is not None
    assert found.end == {"s.message": {0: 20}}
    assert found.behind == 2010
    rest = messages_first(STARTS | {"s.message": {0: 20}}, ENDS, {"s.message"}, 20)
    assert rest is not None
    assert rest.end["s.message"] == {0: 30}
    assert 10 < rest.size <= 20


def test_as_many_messages_as_the_limit_leave_room_for_an_event() -> None:
    found = messages_first(STARTS, ENDS, {"s.message"}, 30)
    assert found is not None
    assert found.end["s.message"] == {0: 30}
    assert found.behind + found.size == 2030


@pytest.mark.parametrize("limit", [1, 7, 500, 5000])
def test_without_messages_the_range_is_the_limited_one(limit: int) -> None:
    ends = {topic: partitions for topic, partitions in ENDS.items() if topic != "s.message"}
    assert messages_first(STARTS, ends, {"s.message"}, limit) == limited(STARTS, ends, limit)
    read = STARTS | {"s.message": {0: 30}}
    found = messages_first(read, ENDS, {"s.message"}, limit)
    assert found == limited(read, ends, limit)


def test_only_messages_are_a_range() -> None:
    read = {topic: partitions if topic != "s.message" else {0: 0} for topic, partitions in ENDS.items()}
    found = messages_first(read, ENDS, {"s.message"}, 100)
    assert found is not None
    assert (found.start, found.end, found.behind) == ({"s.message": {0: 0}}, {"s.message": {0: 30}}, 0)
    assert messages_first(ENDS, ENDS, {"s.message"}, 100) is None
