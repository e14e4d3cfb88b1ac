"""Rules of tables without a key that get one."""

from __future__ import annotations

from typing import Any

from tests.changelogs import Topic
from tests.merge.rules import ORDERS, Rule, row, rule

NO_KEY: dict[str, Any] = {"key": None}


@rule
def table_gets_a_key() -> Rule:
    t = Topic()
    for n in (1, 2, 3, 4):
        t.change("c", 10 + n, row(n, "a"), **NO_KEY)
    t.change("u", 20, row(2, "b"), row(2, "a"), **NO_KEY)
    t.change("d", 21, before=row(4, "a"), **NO_KEY)
    t.change("c", 30, row(5, "new"))
    t.change("u", 31, row(2, "c"))
    t.change("d", 32, before={"id": 1, "v": None})
    t.change("u", 22, row(3, "b"), row(3, "a"), **NO_KEY)
    t.change("u", 18, row(2, "late"), row(2, "later"), **NO_KEY)
    t.change("c", 5, row(1, "late"), **NO_KEY)
    rows = [row(2, "c"), row(3, "b"), row(5, "new")]
    return Rule("a table gets a key, by which its rows go on", t.records, {ORDERS: rows})


@rule
def removals_that_wait_when_a_table_gets_a_key() -> Rule:
    t = Topic()
    t.change("c", 10, row(9, "a"), **NO_KEY)
    t.change("d", 20, before=row(1, "a"), **NO_KEY)
    t.change("u", 21, row(2, "b"), row(2, "a"), **NO_KEY)
    t.change("c", 30, row(3, "new"))
    t.change("c", 11, row(1, "a"), **NO_KEY)
    t.change("c", 12, row(2, "a"), **NO_KEY)
    return Rule(
        "rows that were removed before they arrived stay removed when a table gets a key",
        t.records,
        {ORDERS: [row(9, "a"), row(2, "b"), row(3, "new")]},
    )


@rule
def null_tombstone_of_a_table_without_a_key() -> Rule:
    t = Topic()
    t.change("c", 10, row(1, "a"), **NO_KEY)
    t.tombstone({"id": 1})
    t.change("c", 11, row(2, "b"), **NO_KEY)
    return Rule(
        "a null tombstone removes nothing from a table without a key",
        t.records,
        {ORDERS: [row(1, "a"), row(2, "b")]},
    )
