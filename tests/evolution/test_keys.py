"""Keys of events that are not the one in force of their table."""

from __future__ import annotations

import pytest

from ingest.changelog.spelling import Spelling
from ingest.evolution.keys import Key, newest_key, other_keys

COLUMNS = ("id", "region", "code")


@pytest.mark.parametrize(
    ("carried", "is_whole", "others"),
    [
        ([("id", "region")], True, {}),
        ([("region", "id")], True, {}),
        ([("ID", "Region")], True, {}),
        ([("id",)], True, {("id",): ("id",)}),
        ([("id",)], False, {}),
        ([("code",)], False, {("code",): ("code",)}),
        ([("id", "region", "code")], False, {("id", "region", "code"): ("id", "region", "code")}),
        ([("code", "id")], True, {("code", "id"): ("id", "code")}),
        ([("id", "code"), ("code", "ID")], True, {("id", "code"): ("id", "code"), ("code", "ID"): ("id", "code")}),
        ([()], True, {}),
        ([("unknown",)], True, {}),
    ],
)
def test_other_keys(carried: list[Key], is_whole: bool, others: dict[Key, Key]) -> None:
    found = other_keys(carried, ("id", "region"), [("id", "code")], COLUMNS, Spelling(), is_whole)
    assert found == others


def test_key_of_the_newest_event_is_in_force() -> None:
    assert newest_key(("id",), (0, 5), {("code",): (0, 4)}) == ("id",)
    assert newest_key(("id",), (0, 5), {("code",): (0, 6), ("id", "code"): (0, 7)}) == ("id", "code")
    assert newest_key(("id",), (), {("code",): (0, 1)}) == ("code",)
