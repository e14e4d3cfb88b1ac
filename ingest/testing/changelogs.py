"""Random changelogs: what a source could say, delivered as a transport could deliver it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from ingest.testing.oracle import UNAVAILABLE, Event, Op

KEYS = 3
COLUMNS = ("plain", "number", "toasted")
"""Of a random changelog: a text, an integer, and a text that the source may leave out of an image."""


def random_changelog(random: Random, length: int, truncates: bool = False, partial: bool = True) -> list[Event]:
    """Events of a table with a few keys, in an order of delivery that is not the source's, some of them twice.

    Creates, updates (some without `toasted`, some that move the key), deletes, snapshot reads, null tombstones;
    positions that several events share. Images before only where nothing is deleted: what a source sends after a
    delete begins with a whole image, and these changelogs don't keep to that. Not `partial`: every image is whole."""
    befores = partial and not truncates and random.random() < 0.3
    in_order = random.random() < 0.5
    said = [_event(random, truncates, befores, partial) for _ in range(random.randint(1, length))]
    carrying = partial and in_order and not befores
    if carrying:
        # Two moves never share a position: of one row a source changes, it tells one after the other.
        moves = random.sample(range(1, 13), random.randint(0, 2))
        for number in sorted(moves):
            said += _key_change(random, number * 10, said)
    if not carrying or any(event["op"] == "null" for event in said):
        # What a row held before it moved has to have come before the move; a null tombstone that comes after an update
        # which moved the row stands at the change before that one.
        for event in said:
            if "old_key" in event:
                event["image"] = _image(random)
    delivered = [*said, *(e for e in said if e["op"] != "null" and random.random() < 0.15)]
    if in_order:
        delivered.sort(key=lambda e: (e["lsn"], e["op"] != "r"))
    elif random.random() < 0.6:
        random.shuffle(delivered)
    return [_numbered(offset, event) for offset, event in enumerate(delivered)]


def _numbered(offset: int, event: dict[str, Any]) -> Event:
    # A null tombstone has no position; the number that it was drawn with only put it somewhere.
    return Event(offset=offset, **(event | {"lsn": 0} if event["op"] == "null" else event))


def random_bag(random: Random, length: int) -> tuple[list[Event], list[Event]]:
    """What a table without a key goes through; and how that is delivered: a connector that starts again goes back a
    little and sends once more what it had sent."""
    rows: list[dict[str, Any]] = []
    said: list[Event] = []
    lsn = 0
    while len(said) < length:
        lsn += 10
        row = rows.pop(random.randrange(len(rows))) if rows and random.random() < 0.6 else None
        new = _image(random) if row is None or random.random() < 0.5 else None
        copies = random.randint(2, 3) if row is None and random.random() < 0.3 else 1  # A COPY: one position for all.
        for _ in range(copies):
            said.append(_bag_event(len(said), lsn, new, row))
            rows += [] if new is None else [new]
    until = random.randint(1, len(said))
    earlier = [e.lsn for e in said[: until - 1] if e.lsn < said[until - 1].lsn]
    delivered = said
    if earlier and random.random() < 0.6:
        again = random.choice(earlier)
        delivered = [*said[:until], *(e for e in said if e.lsn >= again)]
    return said, [replace(event, offset=offset) for offset, event in enumerate(delivered)]


def _bag_event(offset: int, lsn: int, new: dict[str, Any] | None, old: dict[str, Any] | None) -> Event:
    op: Op = "d" if new is None else "c" if old is None else "u"
    return Event(op, offset, lsn, image=new or {}, before=old)


def _event(random: Random, truncates: bool, befores: bool, partial: bool) -> dict[str, Any]:
    lsn = random.randint(1, 12) * 10
    chance = random.random()
    if truncates and chance < 0.08:
        return {"op": "t", "lsn": lsn}
    key = random.randrange(KEYS)
    if chance < 0.2 and not befores:
        return {"op": "d", "lsn": lsn, "key": key}
    if chance < 0.3 and not befores:
        return {"op": "null", "lsn": lsn, "key": key}
    event: dict[str, Any] = {"op": random.choice("cuuur"), "lsn": lsn, "key": key, "image": _image(random)}
    if event["op"] == "u":
        if partial and random.random() < 0.5:
            event["image"]["toasted"] = UNAVAILABLE
        if befores and random.random() < 0.6:
            event["before"] = {**_image(random), "toasted": _toasted_before(random)}
        elif random.random() < 0.15 and not befores:
            event["old_key"] = random.randrange(KEYS)
    return event


def _key_change(random: Random, lsn: int, said: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """As Postgres' connector tells it: two events at one position, the second without what was not touched. Where the
    row could be gone by then, it was made anew right before: only a row that is there can move."""
    old, new = random.sample(range(KEYS), 2)
    image = {**_image(random), "toasted": UNAVAILABLE}
    gone = any(event.get("old_key") == old or (event["op"] in ("d", "null") and event["key"] == old) for event in said)
    made = [{"op": "c", "lsn": lsn, "key": old, "image": _image(random)}] if gone else []
    moved = [{"op": "d", "lsn": lsn, "key": old, "new_key": new}, {"op": "c", "lsn": lsn, "key": new, "image": image}]
    return made + moved


def _image(random: Random) -> dict[str, Any]:
    return {
        "plain": random.choice(["x", "y", None]),
        "number": random.randint(0, 9),
        "toasted": random.choice([None, "long", "longer", "longest"]),
    }


def _toasted_before(random: Random) -> Any:
    return random.choice([UNAVAILABLE, None, "was-long", "was-longer"])


def as_debezium(events: Sequence[Event], topic: str, case: int, placeholder: str) -> list[dict[str, Any]]:
    """The records of a topic, as `ingest replay` reads them. Rows are told apart by `case` and, where events have a
    key, `id`. What stands at a position was committed so many milliseconds after 1970."""
    schema, _, table = topic.partition(".")
    source = {"connector": "postgresql", "schema": schema, "table": table}

    def image(key: Any, values: Any) -> dict[str, Any] | None:
        if values is None:
            return None
        named = {n: placeholder if v is UNAVAILABLE else v for n, v in values.items()}
        return {"case": case, **({} if key is None else {"id": key}), **named}

    records = []
    for event in events:
        key = None if event.op == "t" or event.key is None else {"case": case, "id": event.key}
        value: dict[str, Any] | None = None
        if event.op != "null":
            before = image(event.old_key if event.old_key is not None else event.key, event.before)
            if event.old_key is not None and before is None:
                before = {"case": case, "id": event.old_key}
            if event.op == "d" and event.key is not None:
                before = {"case": case, "id": event.key}
            after = image(event.key, event.image) if event.op in ("c", "u", "r") else None
            where = {"lsn": event.lsn, "ts_ms": event.lsn}
            value = {"before": before, "after": after, "op": event.op, "source": source | where}
        record = {"topic": topic, "partition": case, "offset": event.offset, "key": key, "value": value}
        if event.new_key is not None:
            new = {"case": case, "id": event.new_key}
            record["headers"] = [{"key": "__debezium.newkey", "value": new}]
        records.append(record)
    return records
