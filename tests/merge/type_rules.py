"""Rules of columns whose type changes to one that can't hold the values before."""

from __future__ import annotations

from typing import Any

from tests.changelogs import Topic, schema
from tests.merge.rules import ORDERS, Rule, row, rule

ID = ("id", "int32")
UNAVAILABLE = "__debezium_unavailable_value"


def typed(kind: str | dict[str, Any]) -> dict[str, Any]:
    return schema(ID, ("v", kind) if isinstance(kind, str) else {"field": "v", "optional": True, **kind})


def decimal(precision: int, scale: int) -> dict[str, Any]:
    parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    return {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": parameters}


@rule
def values_pass_each_type() -> Rule:
    t = Topic()
    t.change("c", 10, row(1, 7), schema=typed("int32"))
    t.change("c", 30, row(3, "ATY="), schema=typed(decimal(12, 2)))
    t.change("c", 50, row(5, "five"), schema=typed("string"))
    t.change("c", 20, row(2, 8), schema=typed("int32"))
    t.change("u", 40, row(1, "ATc="), schema=typed(decimal(12, 2)))
    t.change("u", 15, row(4, 9), schema=typed("int64"))
    rows = [row(1, "3.11"), row(2, "8.00"), row(3, "3.10"), row(4, "9.00"), row(5, "five")]
    return Rule("values from before pass each type that the column has had", t.records, {ORDERS: rows})


@rule
def text_becomes_a_number() -> Rule:
    t = Topic()
    t.change("c", 10, row(1, " 007"), schema=typed("string"))
    t.change("c", 11, row(2, "seven"), schema=typed("string"))
    t.change("c", 20, row(3, 3), schema=typed("int32"))
    t.change("c", 12, row(4, "-4"), schema=typed("string"))
    rows = [row(1, 7), row(2, None), row(3, 3), row(4, -4)]
    return Rule("text that is a number becomes it, other text is not known", t.records, {ORDERS: rows})


@rule
def values_that_were_not_sent_change_their_type() -> Rule:
    t = Topic()
    t.change("c", 10, {"id": 1, "v": 7, "w": "a"}, schema=schema(ID, ("v", "int32"), ("w", "string")))
    t.change("u", 20, {"id": 1, "v": UNAVAILABLE, "w": "b"}, schema=schema(ID, ("v", "string"), ("w", "string")))
    t.change("u", 30, {"id": 2, "v": UNAVAILABLE, "w": "b"}, schema=schema(ID, ("v", "string"), ("w", "string")))
    t.change("c", 11, {"id": 2, "v": 8, "w": "a"}, schema=schema(ID, ("v", "int32"), ("w", "string")))
    rows = [{"id": 1, "v": "7", "w": "b"}, {"id": 2, "v": "8", "w": "b"}]
    return Rule("a value that was not sent is the older one in the new type", t.records, {ORDERS: rows})


@rule
def column_comes_back_with_another_type() -> Rule:
    t = Topic()
    t.change("c", 10, row(1, "old"), schema=typed("string"))
    t.change("c", 20, {"id": 2}, schema=schema(ID))
    t.change("c", 30, row(3, 3), schema=typed("int32"))
    t.change("c", 12, row(4, "late"), schema=typed("string"))
    rows = [row(1, None), row(2, None), row(3, 3), row(4, None)]
    return Rule("a column that comes back with another type is another one", t.records, {ORDERS: rows})


@rule
def default_changes_its_type() -> Rule:
    t = Topic()
    t.change("c", 10, {"id": 1}, schema=schema(ID))
    t.change("c", 20, row(2, 5), schema=typed({"type": "int32", "default": 7}))
    t.change("c", 30, row(3, "x"), schema=typed("string"))
    t.change("c", 12, {"id": 4}, schema=schema(ID))
    rows = [row(1, "7"), row(2, "5"), row(3, "x"), row(4, "7")]
    return Rule("a default that rows from before read changes its type", t.records, {ORDERS: rows})
