"""The oracle: a naive in-memory reference of a changelog's result. It sorts the events into source order and applies
one after another, without batches, joins or column positions.
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
"""Marks a value in an image that the source did not send."""


@dataclass(frozen=True)
class Event:
    """A change event.

    Attributes:
        op: as Debezium's; `null` is a null tombstone.
        offset: in the single partition of the table's topic.
        lsn: the position in the source.
        key: the row's key; None for a keyless table and for a truncate.
        image, before: the after and the before image.
        old_key: the previous key, for an update that changes it.
        new_key: the next key, for a delete that is the first half of a key change.
    """

    op: Op
    offset: int
    lsn: int = 0
    key: Hashable = None
    image: Mapping[str, Any] = field(default_factory=dict)
    before: Mapping[str, Any] | None = None
    old_key: Hashable = None
    new_key: Hashable = None


@dataclass
class _RowState:
    """A row as of the position `lsn`.

    Attributes:
        since: column → the position of its value.
        weak: columns whose value comes from a before image or from the row's previous key.
        unknown: columns without a known value.
    """

    row: Row
    lsn: int
    since: dict[str, int] = field(default_factory=dict)
    weak: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)


def fold(events: Iterable[Event], columns: Iterable[str]) -> dict[Hashable, Row]:
    """Returns key → row after all events, without rows that have unknown columns. `columns`: those besides the key."""
    *_, (_, rows) = (0, {}), *_replay(events, list(columns))
    return {key: state.row for key, state in rows.items() if not state.unknown}


@dataclass(frozen=True)
class RowVersion:
    """A version of the row of `key`, valid from position `since` until before `until`; None for the current version."""

    key: Hashable
    since: int
    until: int | None
    row: Row


def fold_versions(events: Iterable[Event], columns: Iterable[str]) -> list[RowVersion]:
    """Returns all versions of all rows (SCD 2) without unknown columns and with `since` < `until`."""
    open_versions: dict[Hashable, tuple[int, _RowState]] = {}
    found = []
    for lsn, rows in _replay(events, list(columns)):
        for key, (since, state) in list(open_versions.items()):
            if rows.get(key) is not state or state.unknown:
                found.append(RowVersion(key, since, lsn, state.row))
                del open_versions[key]
        open_versions |= {
            key: (lsn, state) for key, state in rows.items() if key not in open_versions and not state.unknown
        }
    found += [RowVersion(key, since, None, state.row) for key, (since, state) in open_versions.items()]
    return [version for version in found if version.since != version.until]


def _replay(events: Iterable[Event], names: list[str]) -> Iterator[tuple[int, dict[Hashable, _RowState]]]:
    """Yields the position of each event, in source order, and the rows after it."""
    rows: dict[Hashable, _RowState] = {}
    carried: dict[Hashable, _RowState] = {}
    for lsn, event in _in_source_order(list(events)):
        moved = carried.pop(event.key, None)
        if event.op == "t":
            rows.clear()
            carried.clear()
        elif event.op in ("d", "null"):
            deleted = rows.pop(event.key, None)
            if event.new_key is not None:
                _vacate_key(event.new_key, event.lsn, rows, carried)
                if deleted is not None:
                    carried[event.new_key] = replace(deleted, lsn=event.lsn)
        else:
            if event.old_key is not None and event.old_key != event.key:
                _vacate_key(event.key, event.lsn, rows, carried)
                moved = rows.pop(event.old_key, moved if moved and moved.lsn == event.lsn else None)
            rows[event.key] = _apply(event, rows.get(event.key), moved, names)
        yield lsn, rows


def _vacate_key(key: Hashable, lsn: int, rows: dict[Hashable, _RowState], carried: dict[Hashable, _RowState]) -> None:
    """Removes what `key` held before a row moves to it at `lsn`; older values of columns become unknown."""
    for states in (rows, carried):
        if key in states and states[key].lsn < lsn:
            del states[key]
    if key in rows:
        rows[key].unknown |= {name for name, since in rows[key].since.items() if since < lsn}


def fold_bag(events: Iterable[Event]) -> Counter[tuple[tuple[str, Any], ...]]:
    """Returns the rows of a keyless table with their counts. Every event must be given once."""
    rows: Counter[tuple[tuple[str, Any], ...]] = Counter()
    for event in events:
        if event.op in ("c", "r", "u"):
            rows[tuple(sorted(event.image.items()))] += 1
        if event.op in ("u", "d") and event.before is not None:
            rows[tuple(sorted(event.before.items()))] -= 1
    return +rows


def _apply(event: Event, earlier: _RowState | None, moved: _RowState | None, names: list[str]) -> _RowState:
    """Returns the row after an event with an image. `earlier`: the row of this key. `moved`: the row that a key change
    brings from its old key.

    An unavailable value comes from `earlier`, else from the before image, else from `moved`."""
    state = _RowState({}, event.lsn)
    for name in names:
        value = event.image.get(name)
        state.since[name] = event.lsn
        if value is not UNAVAILABLE:
            state.row[name] = value
            continue
        before = None if event.before is None else event.before.get(name)
        if earlier is not None and name not in earlier.weak | earlier.unknown:
            state.row[name], state.since[name] = earlier.row[name], earlier.since[name]
        elif before is not None and before is not UNAVAILABLE:
            state.row[name] = before
            state.weak.add(name)
        elif moved is not None and name not in moved.unknown:
            state.row[name] = moved.row[name]
            state.weak.add(name)
        elif earlier is not None and name in earlier.weak - earlier.unknown:
            state.row[name], state.since[name] = earlier.row[name], earlier.since[name]
            state.weak.add(name)
        else:
            state.unknown.add(name)
    return state


def _in_source_order(events: list[Event]) -> list[tuple[int, Event]]:
    """Returns (position, event) in source order: by position, snapshot reads before streamed events, then by offset. A
    null tombstone takes the position of the change of its key that precedes it in the partition."""
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
