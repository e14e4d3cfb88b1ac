"""The one-line notation of changelogs, their fold by the oracle, and the shrinking of failing ones."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.testing import UNAVAILABLE, Event, fold, format_events, parse_events, shrink
from ingest.testing.changelogs import COLUMNS, random_changelog


@settings(deadline=None)
@given(st.integers(0, 2**32))
def test_line_parses_to_its_events(seed: int) -> None:
    events = random_changelog(Random(seed), 12, truncates=seed % 2 == 0)
    assert parse_events(format_events(events, COLUMNS), COLUMNS) == events


@pytest.mark.parametrize("word", ["x1@10", "c1@10(x)", "c1@", "d@@3"])
def test_invalid_event_is_named(word: str) -> None:
    with pytest.raises(ValueError, match=r"c1@10\(x\)|is no event"):
        parse_events(f"d1@5 {word}", COLUMNS)


@pytest.mark.parametrize(
    ("line", "rows"),
    [
        ("c1@10(x,1) u1@30(y,2) u1@20(z,3)", {1: ("y", 2)}),
        ("c1@10(x,1) d1@30 u1@20(z,3)", {}),
        ("c1@10(x,1) null1 c1@20(y,2)", {1: ("y", 2)}),
        ("r1@10(x,1) u1@10(y,2) r1@10(z,3)", {1: ("y", 2)}),
        ("c1@10(x,1) u2<1@20(y,2)", {2: ("y", 2)}),
        ("c1@10(x,1) c2@20(y,2) t@15", {2: ("y", 2)}),
        ("c1@10(x,1) u1@20(y,?)", {1: ("y", 1)}),
        ("u1@20(y,?)", {}),
        ("u1@20(y,?)[x,7]", {1: ("y", 7)}),
        ("c1@10(x,~) u1@20(y,?)", {1: ("y", None)}),
        ("c1@10(x,1) d1@20 u1@30(y,?)", {}),
        ("c1@10(x,1) d1>2@20 c2@20(y,?)", {2: ("y", 1)}),
        ("c1@10(x,1) d1>2@20 d2@25 c2@30(y,?)", {}),
    ],
)
def test_oracle_folds_each_kind_of_event(line: str, rows: dict[int, tuple[object, ...]]) -> None:
    assert fold(parse_events(line, ("v", "big")), ("v", "big")) == {
        key: {"v": v, "big": big} for key, (v, big) in rows.items()
    }


def test_failing_changelog_shrinks() -> None:
    events = random_changelog(Random(1), 60)
    needed = {events[3].offset, events[len(events) // 2].offset, events[-2].offset}

    def fails(changelogs: list[list[Event]]) -> list[bool]:
        return [needed <= {e.offset for e in events} for events in changelogs]

    assert {e.offset for e in shrink(events, fails)} == needed  # type: ignore[arg-type]


def test_unavailable_value_equals_no_other() -> None:
    others: list[object] = [None, "", 0, "?"]
    assert UNAVAILABLE not in others
