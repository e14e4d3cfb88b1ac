"""Deliveries of a table's changelog by a transport: in another order, repeated, cut into batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, pairwise
from random import Random
from typing import Any, TypeVar

from ingest.testing.assumed import without_ddl
from ingest.testing.oracle import Event
from ingest.testing.tables import TableStory

Part = TypeVar("Part")
Record = dict[str, Any]


def delivered(
    story: TableStory, random: Random, late_changes: bool = False, disordered_bags: bool = False
) -> list[Event]:
    """Returns a delivery of a story's events with new offsets: some twice, runs again (a restarted connector goes
    back), and, unless the table is keyless at some time, in another order. Events of one statement stay together.
    `disordered_bags`: a table that is keyless at some time comes in another order, each event once.

    A change of the definition precedes every event at or above its position, since capture reads the messages of DDL
    last; with `late_changes` it may come at any time."""
    changes = [event for event in story.events if event.ddl is not None]
    line = _units(without_ddl(story.events))
    if not story.has_bags:
        again = random.sample(line, random.randint(0, len(line) // 6))
        line = _disordered([*line, *again], random)
    elif disordered_bags:
        line = random.sample(line, len(line))
    is_once = story.has_bags and disordered_bags
    for _ in range(random.randint(0, 2) if len(line) > 1 and not is_once else 0):
        until = random.randint(2, len(line))
        # An event right behind itself, in a table without a key, is another one at its position, unless a higher one
        # has followed it before.
        known = [one for one, after in pairwise(line[:until]) if after[0].lsn > one[0].lsn]
        last = line[until - 1]
        starts = [start for start in range(until - 1) if line[start] is not last or any(last is one for one in known)]
        line = [*line[:until], *line[random.choice(starts) :]] if starts else line
    sent: list[Event] = []
    for event in chain.from_iterable(line):
        while changes and not late_changes and changes[0].lsn <= event.lsn:
            sent.append(changes.pop(0))
        sent.append(event)
    for change in changes:
        sent.insert(random.randint(0, len(sent)) if late_changes else len(sent), change)
    return [replace(event, offset=offset) for offset, event in enumerate(sent)]


def cut(parts: Sequence[Part], random: Random) -> list[list[Part]]:
    """Returns a division of events or records into consecutive batches."""
    ends = sorted(random.sample(range(1, len(parts)), random.randint(0, min(6, len(parts) - 1)))) if parts else []
    return [[*parts[start:end]] for start, end in pairwise([0, *ends, len(parts)]) if start < end]


def interleaved(tables: Sequence[Sequence[Record]], random: Random) -> list[Record]:
    """Returns the records of several tables, which may share topics, in one sequence with new offsets. Each table's
    records stay in their order, and a null tombstone right behind its delete."""
    waiting = [_groups(records) for records in tables if records]
    sent: list[Record] = []
    while waiting:
        groups = random.choices(waiting, [len(groups) for groups in waiting])[0]
        sent += groups.pop(0)
        waiting = [groups for groups in waiting if groups]
    ends: dict[tuple[str, int], int] = {}
    numbered = []
    for record in sent:
        partition = record["topic"], record["partition"]
        numbered.append(record | {"offset": ends.get(partition, 0)})
        ends[partition] = ends.get(partition, 0) + 1
    return numbered


def _units(events: Sequence[Event]) -> list[list[Event]]:
    """Returns the events of each position, in order; a null tombstone belongs to the event before it."""
    units: list[list[Event]] = []
    for event in events:
        if units and (event.op == "null" or event.lsn == units[-1][0].lsn):
            units[-1].append(event)
        else:
            units.append([event])
    return units


def _disordered(line: list[list[Event]], random: Random) -> list[list[Event]]:
    disorder = random.choice(("none", "some", "all"))
    if disorder == "all":
        return random.sample(line, len(line))
    for _ in range(random.randint(1, 5) if disorder == "some" and line else 0):
        line.insert(random.randrange(len(line)), line.pop(random.randrange(len(line))))
    return line


def _groups(records: Sequence[Record]) -> list[list[Record]]:
    groups: list[list[Record]] = []
    for record in records:
        if record["value"] is None and groups:
            groups[-1].append(record)
        else:
            groups.append([record])
    return groups
