"""Rules of null tombstones in topics whose keys have several forms."""

from __future__ import annotations

from typing import Any

from tests.changelogs import Topic, schema
from tests.merge.rules import ORDERS, Rule, row, rule

ID = ("id", "int32")
VALUES = schema(ID, ("v", "string"))
OWN_TABLE: dict[str, Any] = {"tables": {}}
MICROS = {"type": "int64", "name": "io.debezium.time.MicroTimestamp"}


def wrapped(key: dict[str, Any], *columns: tuple[str, str] | dict[str, Any]) -> dict[str, Any]:
    """Returns a key in Connect's schema and payload."""
    fields = [c if isinstance(c, dict) else {"type": c[1], "optional": False, "field": c[0]} for c in columns or (ID,)]
    return {"schema": {"type": "struct", "optional": False, "fields": fields}, "payload": key}


@rule
def keys_lose_their_schema() -> Rule:
    t = Topic()
    t.change("c", 10, row(1, "a"), schema=VALUES, key=wrapped({"id": 1}))
    t.change("c", 11, row(2, "b"), schema=VALUES, key=wrapped({"id": 2}))
    t.tombstone({"id": 1})
    return Rule("a null tombstone finds its row by a key without the schema", t.records, {ORDERS: [row(2, "b")]})


@rule
def keys_get_a_schema() -> Rule:
    t = Topic()
    t.change("c", 10, row(1, "a"))
    t.change("c", 11, row(2, "b"))
    t.tombstone(wrapped({"id": 1}))
    t.change("c", 20, row(1, "new"))
    return Rule(
        "a null tombstone with a schema stands right after the change of its key without one",
        t.records,
        {ORDERS: [row(1, "new"), row(2, "b")]},
    )


@rule
def names_of_a_key_in_another_order() -> Rule:
    t = Topic(key=("id", "r"))
    for n in (1, 2):
        t.change("c", 10 + n, {"id": n, "r": 7, "v": "a"})
    t.tombstone({"r": 7, "id": 1})
    return Rule(
        "the order of names in a key doesn't matter to a null tombstone",
        t.records,
        {ORDERS: [{"id": 2, "r": 7, "v": "a"}]},
        settings=OWN_TABLE,
    )


@rule
def null_tombstone_before_its_row() -> Rule:
    t = Topic()
    t.change("c", 5, row(2, "b"), schema=VALUES, key=wrapped({"id": 2}))
    t.tombstone({"id": 1})
    t.tombstone(wrapped({"id": 1}))
    t.change("c", 10, row(1, "a"), schema=VALUES, key=wrapped({"id": 1}))
    t.tombstone({"id": 3})
    t.change("c", 11, row(3, "c"))
    return Rule(
        "a null tombstone deletes nothing that follows it, whatever the form of its key",
        t.records,
        {ORDERS: [row(1, "a"), row(2, "b"), row(3, "c")]},
    )


@rule
def null_tombstone_is_read_by_its_own_schema() -> Rule:
    t = Topic(key=("at",))
    at = {**MICROS, "field": "at", "optional": False}
    values = schema(at, ("v", "string"))
    for n in (1, 2):
        micros = n * 1_000_000
        t.change("c", 10 + n, {"at": micros, "v": "a"}, schema=values, key=wrapped({"at": micros}, at))
    t.tombstone(wrapped({"at": 1_000_000}, at))
    return Rule(
        "a null tombstone is read by the schema of its key",
        t.records,
        {ORDERS: [{"at": "1970-01-01T00:00:02", "v": "a"}]},
    )


@rule
def null_tombstone_of_another_form_of_time() -> Rule:
    t = Topic(key=("on",))
    days = {"type": "int32", "name": "io.debezium.time.Date", "field": "on", "optional": False}
    text = {"type": "string", "name": "io.debezium.time.IsoDate", "field": "on", "optional": False}
    t.change("c", 10, {"on": 1, "v": "a"}, schema=schema(days, ("v", "string")), key=wrapped({"on": 1}, days))
    t.change("c", 11, {"on": 2, "v": "b"}, schema=schema(days, ("v", "string")), key=wrapped({"on": 2}, days))
    later = "1970-01-05Z"
    t.change("c", 12, {"on": later, "v": "c"}, schema=schema(text, ("v", "string")), key=wrapped({"on": later}, text))
    t.tombstone(wrapped({"on": 1}, days))
    rows = [{"on": "1970-01-03", "v": "b"}, {"on": "1970-01-05", "v": "c"}]
    return Rule("a null tombstone may have another form of its key than newer events", t.records, {ORDERS: rows})


@rule
def null_tombstone_without_a_part_of_a_declared_key() -> Rule:
    t = Topic(key=("id",))
    columns = schema(ID, ("r", "int32"))
    t.change("c", 10, {"id": 1, "r": 7}, schema=columns, key=wrapped({"id": 1}))
    t.tombstone(wrapped({"id": 1}))
    return Rule(
        "a null tombstone without a column of the declared key is refused",
        t.records,
        {ORDERS: [{"id": 1, "r": 7}]},
        {1: "no-key"},
        {"tables": {ORDERS: {"primary_key": ["id", "r"]}}},
    )


@rule
def null_tombstones_of_rows() -> Rule:
    t = Topic()
    fields = {"type": "struct", "fields": [{"field": n, "type": k, "optional": True} for n, k in (ID, ("v", "string"))]}
    t.record({"id": 1}, row(1, "a"))
    t.record(wrapped({"id": 2}), {"schema": fields, "payload": row(2, "b")})
    t.record({"id": 3}, row(3, "c"))
    t.tombstone(wrapped({"id": 1}))
    t.tombstone({"id": 2})
    t.record({"id": 1}, row(1, "again"))
    settings = {"topic_tables": {t.name: ORDERS}, "record_forms": {t.name: "upsert"}}
    return Rule(
        "rows and null tombstones of one topic may have a schema or none",
        t.records,
        {ORDERS: [row(1, "again"), row(3, "c")]},
        settings=settings,
    )
