"""Rules of declared types, which columns have whatever the schemas of events say."""

from __future__ import annotations

from typing import Any

from tests.changelogs import Topic, schema
from tests.merge.rules import ORDERS, Rule, row, rule
from tests.merge.tombstone_rules import MICROS, wrapped
from tests.merge.type_rules import ID, decimal, typed

MONEY = "decimal(12,2)"


def declared(**columns: str) -> dict[str, Any]:
    return {"tables": {ORDERS: {"columns": columns}}}


@rule
def declared_decimal() -> Rule:
    t = Topic()
    t.change("c", 10, row(1, "12.5"), schema=typed("string"))
    t.change("c", 20, row(2, 0.1), schema=typed("double"))
    t.change("c", 30, row(3, 7), schema=typed("int32"))
    t.change("c", 40, row(4, "MNQ="), schema=typed(decimal(14, 4)))
    t.change("c", 50, row(5, 8.25))
    t.change("c", 15, row(6, None), schema=typed("string"))
    rows = [row(1, "12.50"), row(2, "0.10"), row(3, "7.00"), row(4, "1.25"), row(5, "8.25"), row(6, None)]
    name = "a declared decimal holds text, floats, integers and other decimals of events"
    return Rule(name, t.records, {ORDERS: rows}, settings=declared(v=MONEY))


@rule
def values_that_a_declared_type_cannot_hold() -> Rule:
    t = Topic()
    t.change("c", 10, row(1, "1.255"), schema=typed("string"))
    t.change("c", 11, row(2, "seven"), schema=typed("string"))
    t.change("c", 20, row(3, 0.125), schema=typed("double"))
    t.change("c", 30, row(4, "MQY="), schema=typed(decimal(14, 4)))
    t.change("c", 40, row(5, True), schema=typed("boolean"))
    t.change("c", 50, row(6, 3), schema=typed("int32"))
    return Rule(
        "a value that a declared type can't hold is quarantined, never null or rounded",
        t.records,
        {ORDERS: [row(6, "3.00")]},
        dict.fromkeys(range(5), "undecodable"),
        declared(v=MONEY),
    )


@rule
def declared_text() -> Rule:
    t = Topic()
    t.change("c", 10, row(1, 7), schema=typed("int32"))
    t.change("c", 20, row(2, "ATY="), schema=typed(decimal(12, 2)))
    t.change("c", 30, row(3, True), schema=typed("boolean"))
    t.change("c", 40, row(4, 1_000_000), schema=typed(MICROS))
    t.change("c", 15, row(5, 8), schema=typed("int64"))
    rows = [row(1, "7"), row(2, "3.10"), row(3, "true"), row(4, "1970-01-01 00:00:01"), row(5, "8")]
    return Rule("a declared text is that of Postgres", t.records, {ORDERS: rows}, settings=declared(v="string"))


@rule
def declared_whole_number() -> Rule:
    t = Topic()
    t.change("c", 10, row(1, 5.0), schema=typed("double"))
    t.change("c", 11, row(2, 5.5), schema=typed("double"))
    t.change("c", 20, row(3, "12"), schema=typed("string"))
    t.change("c", 30, row(4, 2**40), schema=typed("int64"))
    t.change("c", 31, row(5, 9), schema=typed("int64"))
    rows = [row(1, 5), row(3, 12), row(5, 9)]
    return Rule(
        "a declared integer holds what is one",
        t.records,
        {ORDERS: rows},
        {1: "undecodable", 3: "undecodable"},
        declared(v="int32"),
    )


@rule
def declared_times() -> Rule:
    t = Topic()
    columns = schema(ID, {"field": "v", "optional": True, **MICROS}, ("w", "int64"))
    day = 86_400_000_000
    t.change("c", 10, {"id": 1, "v": 3 * day, "w": 1_500_000}, schema=columns)
    t.change("c", 11, {"id": 2, "v": 3 * day + 1, "w": 0}, schema=columns)
    return Rule(
        "a declared date or encoding of a time is read from other numbers",
        t.records,
        {ORDERS: [{"id": 1, "v": "1970-01-04", "w": "1970-01-01T00:00:01.5"}]},
        {1: "undecodable"},
        declared(v="date", w="timestamp_from_micros"),
    )


@rule
def declared_key() -> Rule:
    t = Topic()
    for n in (1, 2, 3):
        t.change("c", 10 + n, row(n, "a"), schema=typed("string"), key=wrapped({"id": n}))
    t.change("d", 20, before=row(1, "a"), schema=typed("string"), key=wrapped({"id": 1}))
    t.tombstone(wrapped({"id": 2}))
    t.change("u", 15, row(1, "late"), schema=typed("string"), key=wrapped({"id": 1}))
    return Rule(
        "a key column has its declared type in rows, deletes and null tombstones",
        t.records,
        {ORDERS: [{"id": "3", "v": "a"}]},
        settings=declared(id="string"),
    )


@rule
def declared_column_with_a_default() -> Rule:
    t = Topic()
    t.change("c", 10, {"id": 1}, schema=schema(ID))
    t.change("c", 20, row(2, 5), schema=typed({"type": "int32", "default": 7}))
    t.change("c", 30, row(3, "1.5"), schema=typed("string"))
    t.change("c", 12, {"id": 4}, schema=schema(ID))
    rows = [row(1, "7.00"), row(2, "5.00"), row(3, "1.50"), row(4, "7.00")]
    return Rule(
        "rows from before a declared column read its default in the declared type",
        t.records,
        {ORDERS: rows},
        settings=declared(v=MONEY),
    )


@rule
def declared_array() -> Rule:
    t = Topic()
    texts = {"type": "array", "items": {"type": "string", "optional": True}}
    numbers = {"type": "array", "items": {"type": "int32", "optional": True}}
    t.change("c", 10, row(1, ["1.5", None]), schema=typed(texts))
    t.change("c", 20, row(2, [7]), schema=typed(numbers))
    t.change("c", 30, row(3, ["1.555"]), schema=typed(texts))
    return Rule(
        "elements of an array have their declared type",
        t.records,
        {ORDERS: [row(1, ["1.50", None]), row(2, ["7.00"])]},
        {2: "undecodable"},
        declared(v=f"array<{MONEY}>"),
    )
