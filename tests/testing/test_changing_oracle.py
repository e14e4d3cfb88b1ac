"""The oracle's fold of changelogs with changes of the table's definition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from decimal import Decimal
from itertools import permutations
from random import Random
from typing import Any

import pytest

from ingest.testing import UNKNOWN, assumed, fold, format_events, parse_events, without_ddl
from ingest.testing.oracle import Row

Columns = tuple[str, ...]

CHANGES: list[tuple[str, str, dict[Hashable, Row]]] = [
    ("v", "c1@10(x) +n:int=5@20 c2@30(y,7)", {1: {"v": "x", "n": 5}, 2: {"v": "y", "n": 7}}),
    ("v", "c1@10(x) +n:int@20", {1: {"v": "x", "n": None}}),
    ("v", "c1@10(x) +n:int=!@20 c2@30(y,7)", {1: {"v": "x", "n": UNKNOWN}, 2: {"v": "y", "n": 7}}),
    ("v", "c1@20(y,7) +n:int=5@20", {1: {"v": "y", "n": 7}}),
    ("v,n", "c1@10(x,1) c2@11(x,2) -n@20 u2@30(y)", {1: {"v": "x", "n": 1}, 2: {"v": "y"}}),
    ("v,n", "c1@10(x,1) -n@20 +n:int@30 c2@40(y,2)", {1: {"v": "x", "n": None}, 2: {"v": "y", "n": 2}}),
    ("v,n", "c1@10(x,1) -n@20 +N:int=4@30", {1: {"v": "x", "N": 4}}),
    ("v,n", "c1@10(x,1) n>m@20 c2@30(y,2)", {1: {"v": "x", "m": 1}, 2: {"v": "y", "m": 2}}),
    ("v,n", "c1@10(x,1) n>N@20", {1: {"v": "x", "N": 1}}),
    ("v,n", "c1@10(x,1) -v@20 n>v@30", {1: {"v": 1}}),
    ("n", "c1@10(7) n:numeric(12,2)@20 n:text@30 c2@40(8)", {1: {"n": "7.00"}, 2: {"n": 8}}),
    ("n", "c1@10(7) n:text@20 n:int@30", {1: {"n": UNKNOWN}}),
    ("n", "c1@10(7) c2@11(~) n:text!@20 c3@30(x)", {1: {"n": UNKNOWN}, 2: {"n": UNKNOWN}, 3: {"n": "x"}}),
    ("n,big", "c1@10(7,long) +m:int=3@20 u1@30(8,?,4)", {1: {"n": 8, "big": "long", "m": 4}}),
    ("n,big", "c1@10(7,long) big>huge@20 u1@30(8,?)", {1: {"n": 8, "huge": "long"}}),
    ("n,big", "u1@10(7,?)", {}),
    ("n,big", "u1@10(7,?) -big@20", {1: {"n": 7}}),
    ("n,big", "u1@10(7,?) -big@20 +big:text=x@30", {1: {"n": 7, "big": "x"}}),
    ("n,big", "u1@10(7,?) big>huge@20", {}),
    ("n", "c1@10(7) d1>2@20 +big:text=x@30 c2@40(8,?)", {}),
]
"""Columns at the start, a changelog of a table whose key is no column, its rows."""

IN_TWO: dict[Hashable, Row] = {(1, "eu"): {"id": 1, "r": "eu", "v": "a"}, (1, "us"): {"id": 1, "r": "us", "v": "c"}}
KEYS: list[tuple[Columns, str, dict[Hashable, Row]]] = [
    (("id",), "c1@10(1,eu,a) #id,r@20 c1,us@20(1,us,c)", IN_TWO),
    (("id",), "c1@10(1,eu,a) c2@11(2,eu,b) #id,r@20 c1,us@30(1,us,c) d2,eu@40", IN_TWO),
    (
        ("id", "r"),
        "c1,eu@10(1,eu,a) c1,us@11(1,us,b) d1,us@12 #id@20 u1@30(1,ap,d) u1,eu@11(1,eu,late)",
        {1: {"id": 1, "r": "ap", "v": "d"}},
    ),
    (("id",), "c1@10(1,7,a) c2@11(2,8,b) #r@20 u7@30(1,7,c) d8@40", {7: {"id": 1, "r": 7, "v": "c"}}),
    (("id",), "c1@10(1,eu,a) id>no@20 c2@30(2,eu,b) d1@40", {2: {"no": 2, "r": "eu", "v": "b"}}),
    (
        ("id",),
        "c1@10(1,eu,a) id:numeric(4,1)@20 c2@30(2,eu,b) u1@40(1,us,c)",
        {Decimal(1): {"id": 1, "r": "us", "v": "c"}, 2: {"id": 2, "r": "eu", "v": "b"}},
    ),
    (
        ("id", "r"),
        "c1,eu@10(1,eu,a) c1,us@20(1,us,b) u1,eu@30(1,eu,c) #id@40",
        {1: {"id": 1, "r": "eu", "v": "c"}},
    ),
    (("id",), "c1@10(1,eu,a) d1>2@20 null1 c2@20(2,eu,?) #r@30", {"eu": {"id": 2, "r": "eu", "v": "a"}}),
]
"""Key at the start, a changelog of columns `id`, `r` and `v`, its rows."""

BAGS: list[tuple[str, list[tuple[Any, ...]]]] = [
    ("c@10(1) c@11(1) +b:int=5@20 u@30(1,6)[1,5] c@31(2,7)", [(1, 5), (1, 6), (2, 7)]),
    ("+b:int@5 c@10(1,1) c@11(1,2) -b@20 d@30[1]", [(1,)]),
    ("c@10(1) +b:int=!@20 d@30[1,4]", []),
    ("c@10(1) +b:int=!@20 c@30(1,4) d@40[1,4]", [(1, UNKNOWN)]),
    ("c@10(1) c@11(1) t@20 c@30(2)", [(2,)]),
    ("c@10(1) c@11(2) #a@20 u1@30(1) d2@40 c3@50(3)", [(1,), (3,)]),
    ("c@10(1) #a@20 c2@30(2) #@40 c@50(2) d@60[1]", [(2,), (2,)]),
]
"""A changelog of a keyless table with one column, the values of its rows."""


@pytest.mark.parametrize(("columns", "line", "rows"), CHANGES)
def test_a_change_of_the_definition_is_applied_to_all_rows(columns: str, line: str, rows: dict[Hashable, Row]) -> None:
    assert fold(parse_events(line, columns.split(",")), columns.split(",")) == rows


@pytest.mark.parametrize(("key", "line", "rows"), KEYS)
def test_rows_are_told_apart_by_the_key_at_their_position(key: Columns, line: str, rows: dict[Hashable, Row]) -> None:
    columns = ("id", "r", "v")
    assert fold(parse_events(line, columns, key), columns, key) == rows


@pytest.mark.parametrize(("line", "rows"), BAGS)
def test_rows_without_a_key_match_by_the_columns_that_exist(line: str, rows: list[tuple[Any, ...]]) -> None:
    found = fold(parse_events(line, ("a",), ()), ("a",), ())
    assert Counter(tuple(row.values()) for row in found.values()) == Counter(rows)


@pytest.mark.parametrize("line", ["c1@10(x) +n:int=5@20 c2@30(y,7) -v@40 u1@50(8) d2@60"])
def test_the_order_of_delivery_changes_nothing(line: str) -> None:
    words = line.split()
    should = fold(parse_events(line, ("v",)), ("v",))
    for order in Random(0).sample([*permutations(words)], 60):
        assert fold(parse_events(" ".join(order), ("v",)), ("v",)) == should


@pytest.mark.parametrize("line", [line for _, line, _ in (*CHANGES, *KEYS)] + [line for line, _ in BAGS])
def test_a_line_with_changes_says_the_events_that_it_was_written_from(line: str) -> None:
    key = () if line in [bag for bag, _ in BAGS] else ("id",)
    columns = next((c.split(",") for c, other, _ in CHANGES if other == line), ["a"] if key == () else ["id", "r", "v"])
    assert format_events(parse_events(line, columns, key), columns) == line


@pytest.mark.parametrize("word", ["+n@20", "-@20", "n>@20", "n:@20", "#id", "d1>2x@20", "-n"])
def test_a_malformed_change_is_named(word: str) -> None:
    with pytest.raises(ValueError, match="is no event"):
        parse_events(word, ("n",))


@pytest.mark.parametrize(
    ("line", "changes"),
    [
        ("c1@10(x) +n:int=5@20 c2@30(y,7)", "+n:int=5@30"),
        ("c1@10(x) +n:int=5@20 -n@30 c2@40(y)", ""),
        ("c1@10(x) +n:int@20 c2@30(y,7) -n@40 u1@50(z) +n:int@60 c3@70(y,7)", "+n:int@30 -n@50 +n:int@70"),
        ("c1@10(x) +n:int=!@20 c2@30(y,7)", "+n:int@30"),
        ("c1@10(x) v>w@20 c2@30(y)", "-v@30 +w:@30"),
        ("c1@10(x) v>V@20 c2@30(y)", "v>V@30"),
        ("c1@10(x) v:text@20 c2@30(y)", "v:text@30"),
        ("c1@10(x) #v@20 d1@30", "#v@30"),
        ("+n:int@20 c2@30(y,7) c1@10(x)", "+n:int@30"),
    ],
)
def test_what_the_schemas_of_events_show_is_assumed(line: str, changes: str) -> None:
    found = assumed(without_ddl(parse_events(line, ("v",), ("id",))))
    shown = [event for event in found if event.ddl is not None]
    assert shown[0].ddl is not None
    assert shown[0].ddl.kind == "create.table"
    assert format_events(shown[1:], ()) == changes
    assert [event for event in found if event.ddl is None] == without_ddl(parse_events(line, ("v",), ("id",)))


def test_a_declared_rename_is_one() -> None:
    events = without_ddl(parse_events("c1@10(x) v>w@20 c2@30(y)", ("v",)))
    assert fold(assumed(events, {"v": "w"})) == {1: {"w": "x"}, 2: {"w": "y"}}
    assert fold(assumed(events)) == {1: {"v": "x", "w": None}, 2: {"w": "y"}}


def test_a_missing_field_without_a_schema_is_null() -> None:
    events = without_ddl(parse_events("c1@10(x) -v@20 +n:int=5@20 c2@30(7)", ("v",)))
    assert fold(assumed(events, schemas=False)) == {1: {"v": "x", "n": None}, 2: {"v": None, "n": 7}}
