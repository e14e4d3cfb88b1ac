"""Rules of key columns whose type changes: events of both types find the rows and the tombstones of each other."""

from __future__ import annotations

from typing import Any

from tests.changelogs import Topic, schema
from tests.merge.rules import ORDERS, Rule, row, rule
from tests.merge.tombstone_rules import wrapped
from tests.merge.type_rules import decimal

TEXT = ("v", "string")


def keyed(kind: str | dict[str, Any], *more: tuple[str, str]) -> dict[str, Any]:
    column = ("id", kind) if isinstance(kind, str) else {"field": "id", "optional": False, **kind}
    return schema(column, *more, TEXT)


def changed(new: str | dict[str, Any], one: Any, two: Any, three: Any, old: str | dict[str, Any] = "int32") -> Topic:
    """Returns a topic with rows 1, 2, 4 and 6 of the old type and row 3 of the new one, at 30. Row 1 is deleted by the
    new type; of row 2, a late event and its late delete have the old one; row 4 was deleted before; row 6 stays."""
    t = Topic()
    of_old, of_new = keyed(old), keyed(new)
    first, second, fourth, sixth = (1, 2, 4, 6) if old == "int32" else (one, two, "4", "6")
    for at, key in ((10, first), (11, second), (12, fourth), (13, sixth)):
        t.change("c", at, row(key, "a"), schema=of_old)
    t.change("d", 20, before=row(fourth, "a"), schema=of_old)
    t.change("c", 30, row(three, "new"), schema=of_new)
    t.change("d", 40, before=row(one, "a"), schema=of_new)
    t.change("u", 15, row(first, "late"), schema=of_old)
    t.change("u", 14, row(fourth, "late"), schema=of_old)
    t.change("u", 16, row(second, "b"), schema=of_old)
    t.change("d", 25, before=row(second, "b"), schema=of_old)
    t.change("u", 35, row(two, "wrong"), schema=of_new)
    t.change("d", 36, before=row(two, "wrong"), schema=of_new)
    return t


@rule
def key_becomes_text() -> Rule:
    rows = [row("3", "new"), row("6", "a")]
    return Rule("a key of numbers becomes text", changed("string", "1", "2", "3").records, {ORDERS: rows})


@rule
def key_becomes_a_decimal() -> Rule:
    t = changed(decimal(12, 2), "ZA==", "AMg=", "ASw=")
    t.change("u", 50, row("Alg=", "newest"), schema=keyed(decimal(12, 2)))
    t.change("u", 14, row(4, "late"), schema=keyed("int64"))
    rows = [row("3.00", "new"), row("6.00", "newest")]
    return Rule("a key of whole numbers becomes decimal", t.records, {ORDERS: rows})


@rule
def key_becomes_a_number() -> Rule:
    t = changed("int64", 1, 2, 3, old="string")
    for record in t.records:
        payload = record["value"]["payload"]
        image = payload["after"] or payload["before"]
        of_text = record["value"]["schema"] == keyed("string")
        image["id"] = str(image["id"]) if of_text else int(image["id"])
    return Rule("a key of text becomes a number", t.records, {ORDERS: [row(3, "new"), row(6, "a")]})


@rule
def key_of_several_texts_becomes_a_number() -> Rule:
    t = Topic()
    for at, key in ((10, "07"), (11, " 8"), (12, "+9")):
        t.change("c", at, row(key, "a"), schema=keyed("string"))
    t.change("d", 20, before=row("07", "a"), schema=keyed("string"))
    t.change("d", 21, before=row(" 8", "a"), schema=keyed("string"))
    t.change("c", 30, row(3, "new"), schema=keyed("int32"))
    t.change("u", 15, row("07", "late"), schema=keyed("string"))
    t.change("u", 16, row("+9", "b"), schema=keyed("string"))
    t.change("c", 25, row(" 8", "again"), schema=keyed("string"))
    t.change("d", 31, before=row(9, "b"), schema=keyed("int32"))
    t.change("u", 17, row("+9", "late"), schema=keyed("string"))
    rows = [row(3, "new"), row(8, "again")]
    return Rule("a key of texts that are one number finds its tombstone", t.records, {ORDERS: rows})


@rule
def key_of_a_text_and_a_number_becomes_two_numbers() -> Rule:
    t = Topic(key=("id", "r"))
    of_old, of_new = keyed("string", ("r", "int32")), keyed("int32", ("r", "int64"))

    def image(key: Any, v: str) -> dict[str, Any]:
        return {"id": key, "r": 7, "v": v}

    t.change("c", 10, image("07", "a"), schema=of_old)
    t.change("c", 11, image("08", "a"), schema=of_old)
    t.change("d", 20, before=image("07", "a"), schema=of_old)
    t.change("c", 30, image(3, "new"), schema=of_new)
    t.change("u", 15, image("07", "late"), schema=of_old)
    t.change("u", 16, image("08", "b"), schema=of_old)
    rows = [image(3, "new"), image(8, "b")]
    return Rule("a key of a text and a number becomes one of numbers", t.records, {ORDERS: rows})


@rule
def key_becomes_a_timestamp() -> Rule:
    t = Topic()
    days = {"type": "int32", "name": "io.debezium.time.Date"}
    micros = {"type": "int64", "name": "io.debezium.time.MicroTimestamp"}
    day = 86_400_000_000
    t.change("c", 10, row(1, "a"), schema=keyed(days))
    t.change("c", 11, row(2, "a"), schema=keyed(days))
    t.change("d", 20, before=row(1, "a"), schema=keyed(days))
    t.change("c", 30, row(3 * day + 1, "new"), schema=keyed(micros))
    t.change("u", 15, row(1, "late"), schema=keyed(days))
    t.change("u", 40, row(2 * day, "newest"), schema=keyed(micros))
    rows = [row("1970-01-03T00:00:00", "newest"), row("1970-01-04T00:00:00.000001", "new")]
    return Rule("a key of dates becomes timestamp", t.records, {ORDERS: rows})


@rule
def part_of_a_key_becomes_text() -> Rule:
    t = Topic(key=("id", "r"))
    of_old, of_new = keyed("int32", ("r", "int32")), keyed("string", ("r", "int32"))

    def image(key: Any, v: str) -> dict[str, Any]:
        return {"id": key, "r": 7, "v": v}

    for key in (1, 2, 3):
        t.change("c", 10 + key, image(key, "a"), schema=of_old)
    t.change("d", 20, before=image(1, "a"), schema=of_old)
    t.change("c", 30, image("four", "new"), schema=of_new)
    t.change("d", 40, before=image("2", "a"), schema=of_new)
    t.change("u", 15, image(1, "late"), schema=of_old)
    t.change("u", 16, image(3, "b"), schema=of_old)
    return Rule(
        "a column of a key of several columns becomes text",
        t.records,
        {ORDERS: [image("3", "b"), image("four", "new")]},
    )


@rule
def key_without_a_schema_becomes_text() -> Rule:
    t = Topic()
    t.change("c", 10, row(1, "a"))
    t.change("c", 11, row(2, "a"))
    t.change("d", 20, before=row(1, "a"))
    t.change("c", 30, row("three", "new"))
    t.change("u", 15, row(1, "late"))
    t.change("d", 40, before=row("2", "a"))
    return Rule("a key without a schema becomes text", t.records, {ORDERS: [row("three", "new")]})


@rule
def null_tombstone_of_a_key_that_becomes_text() -> Rule:
    t = Topic()
    for n in (1, 2):
        t.change("c", 10 + n, row(n, "a"), schema=keyed("int32"), key=wrapped({"id": n}))
    t.change("c", 30, row("3", "new"), schema=keyed("string"), key=wrapped({"id": "3"}, ("id", "string")))
    t.tombstone(wrapped({"id": 1}))
    t.change("u", 9, row(1, "late"), schema=keyed("int32"), key=wrapped({"id": 1}))
    return Rule(
        "a null tombstone of a key that has become text deletes its row",
        t.records,
        {ORDERS: [row("2", "a"), row("3", "new")]},
    )


@rule
def key_that_moves_and_becomes_text() -> Rule:
    t = Topic()
    t.change("c", 10, row(1, "a"), schema=keyed("int32"))
    t.change("u", 20, row(2, "a"), row(1, "a"), schema=keyed("int32"))
    t.change("c", 30, row("5", "new"), schema=keyed("string"))
    t.change("u", 40, row("3", "b"), row("2", "a"), schema=keyed("string"))
    t.change("u", 15, row(1, "late"), schema=keyed("int32"))
    t.change("u", 25, row(2, "late"), schema=keyed("int32"))
    return Rule(
        "a row moves to another key before and after it becomes text",
        t.records,
        {ORDERS: [row("3", "b"), row("5", "new")]},
    )


@rule
def key_of_uuids_becomes_text_and_back() -> Rule:
    t = Topic()
    uuids = {"type": "string", "name": "io.debezium.data.Uuid"}
    one, two, three, four = (f"0000000{n}-0000-4000-8000-000000000000" for n in (1, 2, 3, 4))
    for n, key in enumerate((one, two, three)):
        t.change("c", 10 + n, row(key, "a"), schema=keyed(uuids))
    t.change("d", 20, before=row(one, "a"), schema=keyed(uuids))
    t.change("c", 30, row(four, "new"), schema=keyed("string"))
    t.change("d", 31, before=row(four, "new"), schema=keyed("string"))
    t.change("d", 32, before=row(two, "a"), schema=keyed("string"))
    t.change("u", 15, row(one, "late"), schema=keyed(uuids))
    t.change("u", 40, row(three, "newest"), schema=keyed(uuids))
    t.change("u", 16, row(two, "late"), schema=keyed(uuids))
    return Rule("a key of UUIDs becomes text and UUIDs again", t.records, {ORDERS: [row(three, "newest")]})
