"""Hypothesis strategies for testing a pipeline: changelogs of a table, deliveries of them by a transport, and divisions
into batches. For everything that is drawn, the table must equal `fold` of the changelog:

    @given(changelogs().flatmap(deliveries).flatmap(batches))
    def test_the_table_is_what_the_changelog_says(cut: list[list[Event]]) -> None:
        assert rows_of_my_pipeline(cut) == fold(chain.from_iterable(cut), COLUMNS)

Needs the extra `testing`; `ingest.testing` itself does not.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from random import Random
from types import MappingProxyType
from typing import Any

from hypothesis import strategies as st

from ingest.testing.oracle import UNAVAILABLE, Event, Op, Row
from ingest.testing.source_types import MODES, Mode
from ingest.testing.statements import StatementKind, TableStatement, changelog, conflict
from ingest.testing.tables import (
    CHANGES,
    OFTEN,
    RARELY,
    DefinitionStatement,
    Statement,
    TableStory,
    interpret,
    random_definition,
)

Columns = Mapping[str, st.SearchStrategy[Any]]
COLUMNS: Columns = MappingProxyType(
    {
        "plain": st.sampled_from(["x", "y", None]),
        "number": st.integers(0, 9),
        "toasted": st.sampled_from(["long", "longer", "longest", None]),
    }
)
"""The columns besides the key, and strategies of their values; the columns are those of `changelogs.COLUMNS`."""

_FREE: tuple[StatementKind, ...] = ("write", "delete", "null", "move", "read")
# Without single null tombstones: they delete a row at the row's own position (see the comment in `statements`).
_CARRYING: tuple[StatementKind, ...] = ("write", "delete", "move", "move in two events", "read")
# Before images occur only without deletes: after a delete a source begins with a whole image, and until that has
# arrived a value from a before image may be forgotten.
_WITH_BEFORES: tuple[StatementKind, ...] = ("write", "read")


def changelogs(
    columns: Columns = COLUMNS,
    unavailable: Collection[str] = ("toasted",),
    keys: int = 3,
    statements: int = 12,
    truncates: bool = False,
) -> st.SearchStrategy[list[Event]]:
    """Returns a strategy of changelogs of a keyed table, in commit order, each event once.

    Positions are not monotonic, except for each key, and some are shared (a COPY, the reads of a snapshot). The keys
    are 0, 1, …; rows may exist before the changelog. Only columns in `unavailable` are left out of images. A changelog
    with before images has no deletes. If a row changes its key with unavailable values and its old key is written
    again, the events are in position order: `c0@10(x,3,long) d0>1@20 c1@20(y,3,?) c0@30(x,4,~)`. A truncate concerns
    the whole table, so a changelog that may have one needs its own table.

    `keys`, `statements`: the greatest numbers of keys and statements. Raises ValueError if `unavailable` names no
    column."""
    if not set(unavailable) <= set(columns):
        raise ValueError(f"unavailable={unavailable!r}: name some of the columns {[*columns]}, or none: ()")
    modes = [_FREE, _CARRYING] if truncates else [_FREE, _CARRYING, _WITH_BEFORES]
    row = st.fixed_dictionaries(dict(columns))
    names = st.sampled_from([(), *((name,) for name in unavailable), tuple(unavailable)])
    initial_rows = st.fixed_dictionaries({}, optional=dict.fromkeys(range(keys), row))

    def of(kinds: tuple[StatementKind, ...]) -> st.SearchStrategy[list[Event]]:
        one = _statement((*kinds, "truncate") if truncates else kinds, row, names, keys)
        drawn = st.lists(one, min_size=1, max_size=statements)
        return st.builds(changelog, drawn, initial_rows, st.just(keys), st.just(kinds is _CARRYING)).filter(bool)

    return st.one_of(*map(of, modes))


def bags(columns: Columns = COLUMNS, statements: int = 12) -> st.SearchStrategy[list[Event]]:
    """Returns a strategy of changelogs of a keyless table, with whole before and after images. A COPY may write equal
    rows at one position: `c@10(x,3,~) c@10(x,3,~) d@20[x,3,~]`. The table must equal `fold_bag` of this changelog, not
    of a delivery, in which events may occur twice."""
    row, which, once = st.fixed_dictionaries(dict(columns)), st.integers(0, 9), st.just(1)
    create = st.tuples(row, st.none(), st.integers(1, 3))
    change = st.tuples(row, which, once) | st.tuples(st.none(), which, once)
    return st.lists(st.none() | create | change, min_size=1, max_size=statements).map(_bag).filter(bool)


@st.composite
def deliveries(draw: st.DrawFn, events: Sequence[Event]) -> list[Event]:
    """Draws a delivery of a changelog with new offsets: some events twice, runs of events again (a restarted connector
    goes back), and, unless an event depends on earlier ones, in another order. `fold` of it equals `fold` of `events`.

    `c0@10(x,3,long) d0@20 null0` may become `d0@20 null0 c0@10(x,3,long) d0@20 null0`: a null tombstone stays behind
    its change. Events of one key at one position stay in order. For a keyless table only runs repeat, from the first
    event of a position on and after a later position."""
    leading_nulls, units = _units(sorted(events, key=lambda e: e.offset))
    sent = sorted(chain.from_iterable(units), key=lambda e: e.offset)
    keyed = any(e.key is not None for e in sent)
    if keyed:
        numbers = st.integers(0, len(units) - 1)
        again = [units[n] for n in draw(st.lists(numbers, max_size=3, unique=True))]
        after = {unit[-1].offset: unit for unit in again}
        sent = [e for event in sent for e in (event, *after.get(event.offset, ()))]
        places = st.integers(0, len(units) + len(again) - 1)
        if not _needs_order(events) and (moves := draw(st.lists(st.tuples(places, places), max_size=12))):
            line = sorted([*units, *again], key=lambda unit: unit[0].offset)
            for place, to in moves:
                line.insert(to, line.pop(place))
            sent = [*chain.from_iterable(line)]
    for _ in range(draw(st.integers(0, 2)) if sent else 0):
        until = draw(st.integers(1, len(sent)))
        if begins := [at for at in range(until) if _may_begin(sent, at, until, keyed)]:
            sent = [*sent[:until], *sent[draw(st.sampled_from(begins)) :]]
    # First the null tombstones without a preceding change: behind a change of their key they would belong to it.
    return _numbered([*leading_nulls, *sent])


@st.composite
def batches(draw: st.DrawFn, events: Sequence[Event]) -> list[list[Event]]:
    """Draws a division of the events into consecutive, non-empty batches: `[[a, b], [c]]` of `[a, b, c]`."""
    ends = [at for at in range(1, len(events)) if draw(st.booleans())]
    return [[*events[start:end]] for start, end in pairwise([0, *ends, len(events)]) if start < end]


@st.composite
def table_stories(
    draw: st.DrawFn,
    statements: int = 20,
    changes: Collection[DefinitionStatement] = CHANGES,
    mode: Mode | None = None,
    keyless: bool | None = None,
) -> TableStory:
    """Draws what `tables.random_table` returns: a table of any definition, statements on its rows and of `changes` on
    its definition, the events and the true rows. `fold(story.events)` equals `story.rows` over the columns of
    `story.table`.

    `statements`: the greatest number of them. `mode`, `keyless`: None for any."""
    seeds = st.integers(0, 2**32 - 1)
    how: Mode = draw(st.sampled_from(MODES)) if mode is None else mode
    start = random_definition(Random(draw(seeds)), how, draw(st.booleans()) if keyless is None else keyless)
    kinds = st.sampled_from([*OFTEN, *RARELY, *changes])
    drawn = draw(st.lists(st.builds(Statement, kinds, seeds), max_size=statements))
    unlogged = draw(st.none() | st.integers(0, statements))
    return interpret(start, drawn, mode=how, full=draw(st.booleans()), unlogged=unlogged)


def _statement(
    kinds: Collection[StatementKind], row: st.SearchStrategy[Row], names: st.SearchStrategy[tuple[str, ...]], keys: int
) -> st.SearchStrategy[TableStatement | None]:
    key, tombstone = st.integers(0, keys - 1), st.booleans()
    delay = st.sampled_from([0, 0, None] if "move in two events" in kinds else [0, 0, None, 1, 2, 4])
    before = st.none() if "delete" in kinds else st.none() | names
    more: dict[StatementKind, dict[str, st.SearchStrategy[Any]]] = {
        "write": {"row": row, "unsent": names, "before": before},
        "delete": {"tombstone": tombstone},
        "move": {"row": row, "unsent": names, "target": key},
        "move in two events": {"row": row, "unsent": names, "target": key, "tombstone": tombstone},
    }
    of = [
        st.builds(TableStatement, st.just(kind), key, delay=delay, **more.get(kind, {}))
        for kind in ("write", "write", *kinds)
    ]
    # None comes first, so that Hypothesis can shrink a statement to nothing.
    return st.one_of(st.none(), *of)


def _bag(drawn: Sequence[tuple[Row | None, int | None, int] | None]) -> list[Event]:
    """Returns the events of statements: (new row, index of the replaced row, number of copies)."""
    rows: list[Row] = []
    events: list[Event] = []
    for lsn, (new, which, times) in enumerate(filter(None, drawn), start=1):
        if which is not None and not rows:
            continue
        old = None if which is None else rows.pop(which % len(rows))
        op: Op = "d" if new is None else "c" if old is None else "u"
        events += [Event(op, 0, lsn * 10, image=new or {}, before=old)] * times
        rows += [] if new is None else [new] * times
    return _numbered(events)


def _numbered(events: Iterable[Event]) -> list[Event]:
    return [replace(event, offset=offset) for offset, event in enumerate(events)]


def _units(events: Sequence[Event]) -> tuple[list[Event], list[list[Event]]]:
    """Returns the null tombstones without a preceding change, and the other events in the smallest groups that must
    stay in order: the events of one key at one position, with the null tombstones that follow them."""
    leading_nulls: list[Event] = []
    units: list[tuple[tuple[int, bool], list[Event]]] = []
    newest: dict[Hashable, tuple[int, bool]] = {}
    for event in events:
        place = newest.get(event.key) if event.op == "null" else (event.lsn, event.op == "r")
        if place is None:
            leading_nulls.append(event)
            continue
        newest[event.key] = place
        near = [unit for unit in units if unit[0] == place and conflict(unit[1], [event])]
        whole = sorted([*chain.from_iterable(unit for _, unit in near), event], key=lambda e: e.offset)
        units = [*(unit for unit in units if unit not in near), (place, whole)]
    return leading_nulls, sorted((unit for _, unit in units), key=lambda unit: unit[0].offset)


def _needs_order(events: Sequence[Event]) -> bool:
    """Returns True if an event depends on earlier ones: a delete in a changelog with before images, or a key change
    whose old key is written again, which loses the values that the moved row needs."""
    deletes = any(e.op in ("d", "null", "t") or e.old_key is not None for e in events)
    moved = {e.key if e.new_key is not None else e.old_key: e.lsn for e in reversed(events) if _takes_along(e)}
    again = any(e.op in ("c", "u", "r") and e.lsn > moved.get(e.key, e.lsn) for e in events)
    return again or (deletes and any(e.before is not None for e in events))


def _takes_along(event: Event) -> bool:
    """Returns True for a key change whose new image may lack values of the row."""
    return event.new_key is not None or (event.old_key is not None and UNAVAILABLE in event.image.values())


def _may_begin(sent: Sequence[Event], at: int, until: int, keyed: bool) -> bool:
    """Returns True if, after the first `until` events, delivery may restart at event `at`."""
    if not keyed:
        return sent[at].lsn != sent[until - 1].lsn and (at == 0 or sent[at - 1].lsn != sent[at].lsn)
    changed: set[Hashable] = set()
    for event in sent[at:]:
        if event.op != "null":
            changed.add(event.key)
        elif event.key not in changed:
            return False  # it would belong to the latest change of its key
    return True
