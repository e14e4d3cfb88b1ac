"""Random changelogs that a source could send, in an order in which a transport could deliver them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from ingest.testing.oracle import UNAVAILABLE, Event, Op

KEYS = 3
COLUMNS = ("plain", "number", "toasted")
"""The columns of a random changelog: a text, an integer, and a text that may be unavailable in an image."""


def random_changelog(random: Random, length: int, truncates: bool = False, partial: bool = True) -> list[Event]:
    """Returns events of a table with `KEYS` keys in their order of delivery, which often differs from the source's
    order; some events are delivered twice.

    The ops are creates, updates (some without `toasted`, some that change the key), deletes, snapshot reads and null
    tombstones; several events may share a position. Before images occur only in changelogs without deletes: after a
    delete a source begins with a whole image, which these changelogs don't guarantee.

    `length`: the greatest number of events before duplicates. `truncates`: truncates may occur. `partial`: False makes
    every image whole."""
    befores = partial and not truncates and random.random() < 0.3
    in_order = random.random() < 0.5
    events = [_event(random, truncates, befores, partial) for _ in range(random.randint(1, length))]
    carries_values = partial and in_order and not befores
    if carries_values:
        # Two key changes never share a position: a source writes the changes of a row one after another.
        moves = random.sample(range(1, 13), random.randint(0, 2))
        for number in sorted(moves):
            events += _key_change(random, number * 10, events)
    if not carries_values or any(event["op"] == "null" for event in events):
        # Make the images of key changes whole. The values of the old row may arrive after the key change, and a null
        # tombstone after a key change belongs to the change before it.
        for event in events:
            if "old_key" in event:
                event["image"] = _image(random)
    delivered = [*events, *(e for e in events if e["op"] != "null" and random.random() < 0.15)]
    if in_order:
        delivered.sort(key=lambda e: (e["lsn"], e["op"] != "r"))
    elif random.random() < 0.6:
        random.shuffle(delivered)
    return [_numbered(offset, event) for offset, event in enumerate(delivered)]


def _numbered(offset: int, event: dict[str, Any]) -> Event:
    # A null tombstone has no position: its random LSN only determined its place in the order of delivery.
    return Event(offset=offset, **(event | {"lsn": 0} if event["op"] == "null" else event))


def random_bag(random: Random, length: int) -> tuple[list[Event], list[Event]]:
    """Returns the events of a keyless table in source order, and as delivered: a restarted connector goes back some
    positions and sends the events from there again."""
    rows: list[dict[str, Any]] = []
    events: list[Event] = []
    lsn = 0
    while len(events) < length:
        lsn += 10
        row = rows.pop(random.randrange(len(rows))) if rows and random.random() < 0.6 else None
        new = _image(random) if row is None or random.random() < 0.5 else None
        copies = random.randint(2, 3) if row is None and random.random() < 0.3 else 1  # A COPY: one position for all.
        for _ in range(copies):
            events.append(_bag_event(len(events), lsn, new, row))
            rows += [] if new is None else [new]
    until = random.randint(1, len(events))
    earlier = [e.lsn for e in events[: until - 1] if e.lsn < events[until - 1].lsn]
    delivered = events
    if earlier and random.random() < 0.6:
        again = random.choice(earlier)
        delivered = [*events[:until], *(e for e in events if e.lsn >= again)]
    return events, [replace(event, offset=offset) for offset, event in enumerate(delivered)]


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


def _key_change(random: Random, lsn: int, events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns a key change as Debezium's Postgres connector sends it: a delete and a create at one position, the create
    without the unchanged TOASTed value. If the row may be deleted by then, a create at the old key precedes them."""
    old, new = random.sample(range(KEYS), 2)
    image = {**_image(random), "toasted": UNAVAILABLE}
    gone = any(
        event.get("old_key") == old or (event["op"] in ("d", "null") and event["key"] == old) for event in events
    )
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
    """Returns the events as records of a Debezium topic, in the form that `ingest replay` reads. The key columns are
    `case` and, for events with a key, `id`. The commit time is the position in milliseconds since 1970."""
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
