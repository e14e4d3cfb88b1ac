"""The reference: what a changelog means, in memory, one event after another in the order of the source.

It knows nothing of batches, joins or positions of columns. It sorts, and then does what each event says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Op = Literal["c", "u", "d", "r", "t", "null"]
Row = dict[str, Any]


class _Unavailable:
    def __repr__(self) -> str:
        return "?"


UNAVAILABLE = _Unavailable()
"""Stands in an image for a value that the source did not send."""


@dataclass(frozen=True)
class Event:
    """A change event. `lsn`: its position in the source. `offset`: its place in the one partition of its table.
    `key` is the row's key, `old_key` the one that an update moved it away from, `new_key` the one under which a deleted
    row goes on. `null` is a null tombstone."""

    op: Op
    offset: int
    lsn: int = 0
    key: Hashable = None
    image: Mapping[str, Any] = field(default_factory=dict)
    before: Mapping[str, Any] | None = None
    old_key: Hashable = None
    new_key: Hashable = None


@dataclass
class _Kept:
    """A row as of the position `lsn`: since when each column has its value, the columns of which only an image before
    has told, and those that nothing has told."""

    row: Row
    lsn: int
    since: dict[str, int] = field(default_factory=dict)
    weak: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)


def fold(events: Iterable[Event], columns: Iterable[str]) -> dict[Hashable, Row]:
    """key → row, of the rows that are known whole. `columns`: those beside the key."""
    *_, (_, rows) = (0, {}), *_played(events, list(columns))
    return {key: kept.row for key, kept in rows.items() if not kept.unknown}


@dataclass(frozen=True)
class Version:
    """A row of `key` that was there from the position `since` and before `until`; None where it still stands."""

    key: Hashable
    since: int
    until: int | None
    row: Row


def versions(events: Iterable[Event], columns: Iterable[str]) -> list[Version]:
    """All that were known whole, for longer than a position."""
    there: dict[Hashable, tuple[int, _Kept]] = {}
    found = []
    for lsn, rows in _played(events, list(columns)):
        for key, (since, kept) in list(there.items()):
            if rows.get(key) is not kept or kept.unknown:
                found.append(Version(key, since, lsn, kept.row))
                del there[key]
        there |= {key: (lsn, kept) for key, kept in rows.items() if key not in there and not kept.unknown}
    found += [Version(key, since, None, kept.row) for key, (since, kept) in there.items()]
    return [version for version in found if version.since != version.until]


def _played(events: Iterable[Event], names: list[str]) -> Iterator[tuple[int, dict[Hashable, _Kept]]]:
    """The rows after each event, and its position."""
    rows: dict[Hashable, _Kept] = {}
    carried: dict[Hashable, _Kept] = {}
    for lsn, event in _in_source_order(list(events)):
        moved = carried.pop(event.key, None)
        if event.op == "t":
            rows.clear()
            carried.clear()
        elif event.op in ("d", "null"):
            gone = rows.pop(event.key, None)
            if event.new_key is not None:
                _vacate(event.new_key, event.lsn, rows, carried)
                if gone is not None:
                    carried[event.new_key] = replace(gone, lsn=event.lsn)
        else:
            if event.old_key is not None and event.old_key != event.key:
                _vacate(event.key, event.lsn, rows, carried)
                moved = rows.pop(event.old_key, moved if moved and moved.lsn == event.lsn else None)
            rows[event.key] = _applied(event, rows.get(event.key), moved, names)
        yield lsn, rows


def _vacate(key: Hashable, lsn: int, rows: dict[Hashable, _Kept], carried: dict[Hashable, _Kept]) -> None:
    """A row moves to a key: so nothing that is older was there any more."""
    for kept in (rows, carried):
        if key in kept and kept[key].lsn < lsn:
            del kept[key]
    if key in rows:
        rows[key].unknown |= {name for name, since in rows[key].since.items() if since < lsn}


def fold_bag(events: Iterable[Event]) -> Counter[tuple[tuple[str, Any], ...]]:
    """The rows of a table without a key: each image as often as it is there. Every event counts once."""
    rows: Counter[tuple[tuple[str, Any], ...]] = Counter()
    for event in events:
        if event.op in ("c", "r", "u"):
            rows[tuple(sorted(event.image.items()))] += 1
        if event.op in ("u", "d") and event.before is not None:
            rows[tuple(sorted(event.before.items()))] -= 1
    return +rows


def _applied(event: Event, earlier: _Kept | None, moved: _Kept | None, names: list[str]) -> _Kept:
    """`earlier`: the row of this key. `moved`: the row that had another key right before."""
    kept = _Kept({}, event.lsn)
    for name in names:
        value = event.image.get(name)
        kept.since[name] = event.lsn
        if value is not UNAVAILABLE:
            kept.row[name] = value
            continue
        before = None if event.before is None else event.before.get(name)
        if earlier is not None and name not in earlier.weak | earlier.unknown:
            kept.row[name], kept.since[name] = earlier.row[name], earlier.since[name]
        elif before is not None and before is not UNAVAILABLE:
            kept.row[name] = before
            kept.weak.add(name)
        elif moved is not None and name not in moved.unknown:
            kept.row[name] = moved.row[name]
            kept.weak.add(name)
        elif earlier is not None and name in earlier.weak - earlier.unknown:
            kept.row[name], kept.since[name] = earlier.row[name], earlier.since[name]
            kept.weak.add(name)
        else:
            kept.unknown.add(name)
    return kept


def _in_source_order(events: list[Event]) -> list[tuple[int, Event]]:
    """Each with its position. By that, a snapshot read before what streamed at the same; ties by offset. A null
    tombstone stands right after the change of its key before it in the partition."""
    place: dict[int, tuple[int, int, int]] = {}
    newest: dict[Hashable, tuple[int, int]] = {}
    for event in sorted(events, key=lambda e: e.offset):
        if event.op == "null":
            lsn, streamed = newest.get(event.key, (0, 1))
            place[event.offset] = (lsn, streamed, event.offset)
            continue
        here = (event.lsn, 0 if event.op == "r" else 1)
        place[event.offset] = (*here, event.offset)
        newest[event.key] = here
    return [(place[e.offset][0], e) for e in sorted(events, key=lambda e: place[e.offset])]
