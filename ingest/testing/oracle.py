"""The oracle: a naive in-memory reference of a changelog's result. It sorts the events into source order and applies
one after another, without batches, joins or column positions. A change of the table's definition is applied to all of
its rows at once, as the source does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ingest.testing.casts import cast
from ingest.testing.source_table import UNKNOWN, SourceColumn, SourceTable, TableChange, changed, key_of, same_name

Op = Literal["c", "u", "d", "r", "t", "null", "ddl"]
Row = dict[str, Any]


class _Unavailable:
    def __repr__(self) -> str:
        return "?"


UNAVAILABLE = _Unavailable()
"""Marks a value in an image that the source did not send."""


_STREAMED = {"ddl": -1, "r": 0}
"""The order of events at one position, by their op; 1 for others."""


@dataclass(frozen=True)
class Event:
    """A change event.

    Attributes:
        op: as Debezium's; `null` is a null tombstone, `ddl` a change of the table's definition.
        offset: in the single partition of the table's topic.
        lsn: the position in the source.
        key: the row's key; None for a keyless table, a truncate and a change of the definition.
        image, before: the after and the before image.
        old_key: the previous key, for an update that changes it.
        new_key: the next key, for a delete that is the first half of a key change.
        ddl: the change of the definition. It stands below every event at its position.
        carried: the definition that the record carries: the columns of its schema, and the columns of its key; of a
            `ddl`, the definition after it.
    """

    op: Op
    offset: int
    lsn: int = 0
    key: Hashable = None
    image: Mapping[str, Any] = field(default_factory=dict)
    before: Mapping[str, Any] | None = None
    old_key: Hashable = None
    new_key: Hashable = None
    ddl: TableChange | None = None
    carried: SourceTable | None = None


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


def fold(
    events: Iterable[Event], columns: Iterable[str] = (), key: tuple[str, ...] | None = None
) -> dict[Hashable, Row]:
    """Returns key → row after all events, without rows that have unknown columns. The rows of a keyless table have keys
    that mean nothing.

    A dropped column stays in the rows of a keyed table that were not written since. A value that only the source knows
    is `UNKNOWN`.

    `columns`: those at the start, besides the key if `key` is None. `key`: the key columns at the start, () for a
    keyless table, whose events must be given once. Both may be left out if the events begin with `create.table`."""
    *_, (_, rows) = (0, {}), *_replay(events, columns, key)
    return {key: state.row for key, state in rows.items() if not state.unknown}


@dataclass(frozen=True)
class RowVersion:
    """A version of the row of `key`, valid from position `since` until before `until`; None for the current version."""

    key: Hashable
    since: int
    until: int | None
    row: Row


def fold_versions(events: Iterable[Event], columns: Iterable[str]) -> list[RowVersion]:
    """Returns all versions of all rows (SCD 2) without unknown columns and with `since` < `until`. The events must have
    no changes of the definition."""
    open_versions: dict[Hashable, tuple[int, _RowState]] = {}
    found = []
    for lsn, rows in _replay(events, columns, None):
        for key, (since, state) in list(open_versions.items()):
            if rows.get(key) is not state or state.unknown:
                found.append(RowVersion(key, since, lsn, state.row))
                del open_versions[key]
        open_versions |= {
            key: (lsn, state) for key, state in rows.items() if key not in open_versions and not state.unknown
        }
    found += [RowVersion(key, since, None, state.row) for key, (since, state) in open_versions.items()]
    return [version for version in found if version.since != version.until]


def _replay(
    events: Iterable[Event], columns: Iterable[str], key: tuple[str, ...] | None
) -> Iterator[tuple[int, dict[Hashable, _RowState]]]:
    """Yields the position of each event, in source order, and the rows after it."""
    table = SourceTable({name: SourceColumn() for name in columns}, key)
    rows: dict[Hashable, _RowState] = {}
    carried: dict[Hashable, _RowState] = {}
    for lsn, event in _in_source_order(list(events)):
        moved = carried.pop(event.key, None)
        if event.ddl is not None:
            carried.clear()
            before, table = table, changed(table, event.ddl)
            rows = _altered(rows, before, table, event.ddl)
        elif table.keyless:
            _apply_keyless(event, rows, [*table.columns])
        elif event.op == "t":
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
            rows[event.key] = _apply(event, rows.get(event.key), moved, table.columns)
        yield lsn, rows


def _vacate_key(key: Hashable, lsn: int, rows: dict[Hashable, _RowState], carried: dict[Hashable, _RowState]) -> None:
    """Removes what `key` held before a row moves to it at `lsn`; older values of columns become unknown."""
    for states in (rows, carried):
        if key in states and states[key].lsn < lsn:
            del states[key]
    if key in rows:
        rows[key].unknown |= {name for name, since in rows[key].since.items() if since < lsn}


def _altered(
    rows: dict[Hashable, _RowState], before: SourceTable, after: SourceTable, change: TableChange
) -> dict[Hashable, _RowState]:
    """Returns the rows after a change of the definition."""
    if change.kind in ("create.table", "drop.table"):
        return rows if change.kind == "create.table" else {}
    for state in rows.values():
        _alter(state, change)
        if after.keyless:
            state.row = {name: value for name, value in state.row.items() if name in after.columns}
    if not after.key or (before.key == after.key and change.kind != "alter.column.type"):
        return rows
    return {_key_of(state.row, after): state for state in sorted(rows.values(), key=lambda state: state.lsn)}


def _key_of(row: Row, table: SourceTable) -> Hashable:
    """Returns the key of a row; one of its own if a column that is NOT NULL is null, whose value no event tells."""
    key = table.key or ()
    is_unknown = any(row.get(name) is None and not table.columns[name].optional for name in key)
    return object() if is_unknown else key_of(row, key)


def _alter(state: _RowState, change: TableChange) -> None:
    """Changes one row as the source does; a dropped column keeps its value until the row is written again."""
    name, to = change.column, change.to
    match change.kind:
        case "add.column" if to is not None:
            _rename(state, {}, name)
            state.row[name], state.since[name] = to.default, state.lsn
        case "drop.column":
            state.unknown.discard(name)
        case "rename.column":
            _rename(state, {name: change.name}, change.name)
        case "alter.column.type" if to is not None and name not in state.unknown:
            state.row[name] = UNKNOWN if change.using else cast(state.row[name], to.type)


def _rename(state: _RowState, renamed: Mapping[str, str], taken: str) -> None:
    """Renames columns; what other columns of the name `taken` have left behind goes."""

    def names(old: Iterable[str]) -> dict[str, str]:
        return {name: renamed.get(name, name) for name in old if name in renamed or not same_name(name, taken)}

    state.row = {new: state.row[old] for old, new in names(state.row).items()}
    state.since = {new: state.since[old] for old, new in names(state.since).items()}
    state.weak, state.unknown = set(names(state.weak).values()), set(names(state.unknown).values())


def _apply_keyless(event: Event, rows: dict[Hashable, _RowState], names: Sequence[str]) -> None:
    """Applies an event to a bag of rows, which are told apart by their values in all columns."""
    if event.op == "t":
        rows.clear()
    if event.op in ("u", "d") and (old := event.before) is not None:
        found = (key for key, state in rows.items() if all(state.row.get(n) == old.get(n) for n in names))
        likely = (key for key, s in rows.items() if all(s.row.get(n) in (old.get(n), UNKNOWN) for n in names))
        rows.pop(next(found, next(likely, None)), None)
    if event.op in ("c", "r", "u"):
        row = {name: event.image.get(name) for name in names}
        rows[object()] = _RowState(row, event.lsn, dict.fromkeys(names, event.lsn))


def fold_bag(events: Iterable[Event]) -> Counter[tuple[tuple[str, Any], ...]]:
    """Returns the rows of a keyless table with their counts. Every event must be given once."""
    rows: Counter[tuple[tuple[str, Any], ...]] = Counter()
    for event in events:
        if event.op in ("c", "r", "u"):
            rows[tuple(sorted(event.image.items()))] += 1
        if event.op in ("u", "d") and event.before is not None:
            rows[tuple(sorted(event.before.items()))] -= 1
    return +rows


def _apply(event: Event, earlier: _RowState | None, moved: _RowState | None, names: Iterable[str]) -> _RowState:
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
    """Returns (position, event) in source order: by position, snapshot reads before streamed events, changes of the
    definition before both, then by offset. A null tombstone takes the position of the change of its key that precedes
    it in the partition."""
    places: list[tuple[int, int, Event]] = []
    newest: dict[Hashable, tuple[int, int]] = {}
    for event in sorted(events, key=lambda e: e.offset):
        place = newest.get(event.key, (0, 1)) if event.op == "null" else (event.lsn, _STREAMED.get(event.op, 1))
        if event.op not in ("null", "ddl"):
            newest[event.key] = place
        places.append((*place, event))
    return [(lsn, event) for lsn, _, event in sorted(places, key=lambda place: place[:2])]
