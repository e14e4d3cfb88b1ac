"""Statements on a table, and the events that its source logs for them: a changelog in commit order."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from ingest.testing.oracle import UNAVAILABLE, Event, Row

StatementKind = Literal["write", "delete", "null", "move", "move in two events", "read", "truncate"]
_MOVES = ("move", "move in two events")
_CAN_SHARE = ("write", "delete", "truncate")


@dataclass(frozen=True)
class TableStatement:
    """A statement on the table. It has no effect if there is no row to change, or no free key to move to.

    Attributes:
        key: of a write, the key; of other kinds, an index into the existing rows, modulo their number.
        target: of a move, an index into the free keys, modulo their number.
        unsent: columns that keep their values, which the log leaves out.
        before: the columns that the before image leaves out; None for no before image.
        tombstone: a null tombstone follows the delete.
        delay: the number of statements after which its transaction commits; None: it shares the position and the
            transaction of the statement before it.
    """

    kind: StatementKind
    key: int = 0
    row: Row = field(default_factory=dict)
    target: int = 0
    unsent: Collection[str] = ()
    before: Collection[str] | None = None
    tombstone: bool = False
    delay: int | None = 0


@dataclass(frozen=True)
class _Logged:
    """The events of a transaction, and the number of later transactions that commit before it."""

    events: list[Event]
    delay: int


def changelog(
    statements: Sequence[TableStatement | None], initial_rows: Mapping[int, Row], keys: int, carries_values: bool
) -> list[Event]:
    """Returns the events of `statements` in commit order.

    `initial_rows`: key → row that exists at the start. `carries_values`: an update that changes a key may leave out
    unchanged values."""
    rows = {key: dict(row) for key, row in initial_rows.items()}
    steps: list[_Logged] = []
    lsn, last = 0, ""
    for statement in filter(None, statements):
        shares = statement.delay is None and statement.kind in _CAN_SHARE and last in (*_CAN_SHARE, "read")
        # If the first of several changes of a row at one position is delivered again, it wins for a while; a key change
        # in between would carry its values on for good. So with `carries_values` only a COPY shares a position.
        if carries_values and shares:
            shares = last == statement.kind == "write" and statement.key not in {e.key for e in steps[-1].events}
        events = _logged(statement, rows, keys, lsn if shares else lsn + 10, carries_values)
        if not events:
            continue
        if shares:
            steps[-1] = replace(steps[-1], events=[*steps[-1].events, *events])
        else:
            steps.append(_Logged(events, statement.delay or 0))
        lsn, last = events[0].lsn or lsn, statement.kind
    return [replace(event, offset=offset) for offset, event in enumerate(_committed(steps))]


def conflict(events: Sequence[Event], others: Sequence[Event]) -> bool:
    """Returns True if the order of the two groups matters: they share a key, or one has a truncate."""
    one, other = ({k for e in es for k in (e.key, e.old_key, e.new_key) if k is not None} for es in (events, others))
    return not one.isdisjoint(other) or any(e.op == "t" for e in [*events, *others])


def _logged(statement: TableStatement, rows: dict[int, Row], keys: int, lsn: int, carries_values: bool) -> list[Event]:
    """Applies a statement to `rows` and returns its events."""
    kind, live = statement.kind, sorted(rows)
    if kind == "truncate":
        rows.clear()
        return [Event("t", 0, lsn)]
    if kind == "read":
        return [Event("r", 0, lsn, key, dict(rows[key])) for key in live]
    if kind == "write" and statement.key not in rows:
        rows[statement.key] = statement.row
        return [Event("c", 0, lsn, statement.key, statement.row)]
    free = [key for key in range(keys) if key not in rows]
    if not live or (kind in _MOVES and not free):
        return []
    key = statement.key if kind == "write" else live[statement.key % len(live)]
    old = rows.pop(key)
    null = Event("null", 0, key=key)
    nulls = [null] if statement.tombstone else []
    if kind == "null":
        return [null]
    if kind == "delete":
        return [Event("d", 0, lsn, key), *nulls]
    new = key if kind == "write" else free[statement.target % len(free)]
    rows[new] = statement.row | {name: old[name] for name in statement.unsent}
    image = statement.row | dict.fromkeys(statement.unsent, UNAVAILABLE)
    if kind == "move in two events":
        return [Event("d", 0, lsn, key, new_key=new), *nulls, Event("c", 0, lsn, new, image)]
    if kind == "move":
        return [Event("u", 0, lsn, new, image if carries_values else rows[new], old_key=key)]
    before = None if statement.before is None else old | dict.fromkeys(statement.before, UNAVAILABLE)
    return [Event("u", 0, lsn, key, image, before)]


def _committed(steps: Sequence[_Logged]) -> list[Event]:
    """Returns the events in commit order. A transaction commits after earlier ones that touch the same rows (row
    locks)."""
    commits: list[int] = []
    for number, step in enumerate(steps):
        waits = [at for at, earlier in zip(commits, steps, strict=False) if conflict(earlier.events, step.events)]
        commits.append(max([number + step.delay, *waits]))
    order = sorted(range(len(steps)), key=commits.__getitem__)
    return [event for number in order for event in steps[number].events]
