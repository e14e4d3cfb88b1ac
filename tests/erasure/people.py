"""Members, their claims and the claims' photos: random changelogs, their state after an erasure, and their records."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from ingest.config import Pipeline, load
from ingest.suppression.cutoff import WHOLE_SOURCE, Cutoff
from ingest.testing import Event, fold
from tests.changelogs import Record

MEMBERS, CLAIMS, PHOTOS = "public.members", "public.claims", "public.photos"
TABLES = (MEMBERS, CLAIMS, PHOTOS)
LINKS = {CLAIMS: ("member_id", MEMBERS), PHOTOS: ("claim_id", CLAIMS)}
COLUMNS = {MEMBERS: ("name",), CLAIMS: ("member_id", "text"), PHOTOS: ("claim_id", "text")}
KEYS = 3
FAR = 10_000
STRIDE = 7_310_000
"""The distance between the keys of two cases. Tests search logs for keys, so keys must not look like other numbers."""
SECRET = "1 " + "5a" * 32
SETTINGS: dict[str, Any] = {
    MEMBERS: {"subject": {"of": "member", "key": "id"}, "personal": ["name"]},
    CLAIMS: {"subject": {"through": {"member_id": MEMBERS}}, "personal": ["text"]},
    PHOTOS: {"subject": {"through": {"claim_id": CLAIMS}}},
}


@dataclass(frozen=True)
class TableEvent:
    """An event of a table; `event.offset` is its offset in the table's partition."""

    table: str
    event: Event


def insured(folder: Path, **more: Any) -> Pipeline:
    folder.mkdir(parents=True, exist_ok=True)
    key_file = folder / "ledger.key"
    key_file.write_text(SECRET + "\n", encoding="ascii")
    key_file.chmod(0o600)
    written = {
        "name": "insured",
        "source": {"kafka": {"bootstrap.servers": "127.0.0.1:9"}, "topic_pattern": "insured.*"},
        "lakehouse": str(folder / "lakehouse"),
        "privacy": {"key_file": str(key_file)},
        "tables": SETTINGS,
    }
    file = folder / "insured.yaml"
    file.write_text(json.dumps(written | more), encoding="utf-8")
    return load(str(file), {})


def random_history(random: Random, case: int, length: int, settled: bool) -> list[TableEvent]:
    """Returns events in source order. Images are whole; a history has before images or none; some deletes are followed
    by a null tombstone, some rows change their key, and some events are delivered again much later. `settled`: rows
    keep their key and their parent."""
    events: list[TableEvent] = []
    offsets = dict.fromkeys(TABLES, 0)

    def add(table: str, event: Event) -> None:
        events.append(TableEvent(table, replace(event, offset=offsets[table])))
        offsets[table] += 1

    befores = random.random() < 0.5
    leads = {t: [STRIDE * case + random.randrange(KEYS) for _ in range(KEYS)] for t in LINKS} if settled else None
    for n in range(length):
        table = random.choice(TABLES)
        event = _event(random, table, case, 10 * (n + 1), befores, leads)
        add(table, event)
        if event.op == "d" and random.random() < 0.5:
            add(table, Event("null", 0, 0, event.key))
        again = random.choice(events)
        if random.random() < 0.15 and again.event.op != "null":
            add(again.table, again.event)
    return events


def moved_later(events: Sequence[TableEvent], after: int) -> list[TableEvent]:
    """Returns the events, with those after the first `after` ones moved to far higher positions, except
    redeliveries."""
    known = {s.event.lsn for s in events[:after]}

    def moved(s: TableEvent) -> TableEvent:
        return (
            s
            if s.event.lsn in known or s.event.op == "null"
            else replace(s, event=replace(s.event, lsn=s.event.lsn + FAR))
        )

    return [*events[:after], *map(moved, events[after:])]


def _event(
    random: Random, table: str, case: int, lsn: int, befores: bool, leads: Mapping[str, Sequence[int]] | None
) -> Event:
    key = STRIDE * case + random.randrange(KEYS)

    def image() -> dict[str, Any]:
        found: dict[str, Any] = {column: random.choice("xyz") for column in COLUMNS[table]}
        if table in LINKS:
            other = STRIDE * case + random.randrange(KEYS)
            found[LINKS[table][0]] = leads[table][key % STRIDE] if leads else other
        return found

    op = random.choice("ccuuudr")
    before = image() if befores and op in "ud" else None
    if op == "d":
        return Event("d", 0, lsn, key, before=before)
    old = STRIDE * case + random.randrange(KEYS) if op == "u" and not leads and random.random() < 0.15 else None
    return Event(op, 0, lsn, key, image(), before, None if old == key else old)  # type: ignore[arg-type]


def cutoff(case: int, events: Sequence[TableEvent]) -> Cutoff:
    """Returns the cutoff right after these events."""
    offsets = {topic(t): {case: sum(s.table == t for s in events)} for t in TABLES}
    last = max((s.event.lsn for s in events), default=0)
    return Cutoff(offsets, {WHOLE_SOURCE: (0, last, 0, 0, 1, 0, 0)} if last else {})


def remaining_rows(
    events: Sequence[TableEvent], requested_after: int, member: int
) -> dict[str, dict[Hashable, dict[str, Any]]]:
    """Returns table → its rows without the events of the member's subject up to the cutoff."""
    last = max((s.event.lsn for s in events[:requested_after]), default=0)
    places = _places(events)

    def is_old(n: int) -> bool:
        # A snapshot read at the cutoff's position is new.
        return n < requested_after or 0 < places[n] < last or (places[n] == last and events[n].event.op != "r")

    old = [n for n in range(len(events)) if is_old(n)]
    fenced: set[tuple[str, Hashable]] = {(MEMBERS, member)}
    gone: set[int] = set()
    while more := [n for n in old if n not in gone and fenced & set(_names(events[n]))]:
        gone.update(more)
        fenced.update((events[n].table, key) for n in more for key in _own(events[n].event))
    later = [n for n in range(len(events)) if n not in old and events[n].event.op != "null"]
    gone.update(_later_updates(events, sorted(later, key=lambda n: places[n]), fenced))
    kept = [s for n, s in enumerate(events) if n not in gone]
    return {t: fold([s.event for s in kept if s.table == t], COLUMNS[t]) for t in TABLES}


def _later_updates(
    events: Sequence[TableEvent], later: Sequence[int], fenced: set[tuple[str, Hashable]]
) -> Iterator[int]:
    """Yields those of the events after the cutoff, in the order of their positions, that update a row of `fenced` keys
    without a new life, as long as it leads to the subject. A key to which such a row moves is fenced too."""
    living: set[tuple[str, Hashable]] = set()
    for n in later:
        table, event = events[n].table, events[n].event
        row, target = (table, event.key if event.old_key is None else event.old_key), (table, event.key)
        is_dead = row in fenced and row not in living
        if event.op in ("c", "r"):
            living.add(row)
        elif event.op == "u" and is_dead and _leads(events[n], fenced):
            yield n
            fenced.add(target)
            living.discard(target)
        elif event.op == "u":
            living.add(target)


def _leads(update: TableEvent, fenced: set[tuple[str, Hashable]]) -> bool:
    if update.table not in LINKS:
        return True
    column, parent = LINKS[update.table]
    return (parent, update.event.image[column]) in fenced


def _places(events: Sequence[TableEvent]) -> list[int]:
    """Returns the position of each event; a null tombstone has that of the preceding change of its key."""
    newest: dict[tuple[str, Hashable], int] = {}
    found = []
    for s in events:
        if s.event.op != "null":
            newest[s.table, s.event.key] = s.event.lsn
        found.append(newest.get((s.table, s.event.key), 0))
    return found


def _own(event: Event) -> list[Hashable]:
    return [key for key in (event.key, event.old_key) if key is not None]


def _names(events: TableEvent) -> Iterator[tuple[str, Hashable]]:
    yield from ((events.table, key) for key in _own(events.event))
    if events.table in LINKS:
        column, parent = LINKS[events.table]
        images: list[Mapping[str, Any]] = [events.event.image, events.event.before or {}]
        yield from ((parent, image[column]) for image in images if column in image)


def topic(table: str) -> str:
    return f"insured.{table.partition('.')[2]}"


def records(events: Sequence[TableEvent], case: int) -> list[Record]:
    """Returns the events as records in partition `case` of each table's topic."""
    found = []
    for s in events:
        event, (schema, _, table) = s.event, s.table.partition(".")
        value: dict[str, Any] | None = None
        if event.op != "null":
            source = {"connector": "postgresql", "schema": schema, "table": table, "lsn": event.lsn, "ts_ms": event.lsn}
            after = {"id": event.key, **event.image} if event.op != "d" else None
            before = None if event.before is None else {"id": event.key, **event.before}
            if event.old_key is not None:
                before = (before or {}) | {"id": event.old_key}
            value = {"before": before, "after": after, "op": event.op, "source": source}
        place = {"topic": topic(s.table), "partition": case, "offset": event.offset}
        found.append({**place, "key": {"id": event.key}, "value": value})
    return found
