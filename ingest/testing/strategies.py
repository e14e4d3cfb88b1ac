"""Hypothesis strategies for testing a pipeline: what a source says of a table, how a transport may deliver it, and how
that may be cut into batches. Whatever is drawn, the table is what `fold` says of it:

    @given(changelogs().flatmap(deliveries).flatmap(batches))
    def test_the_table_is_what_the_changelog_says(cut: list[list[Event]]) -> None:
        assert rows_of_my_pipeline(cut) == fold(chain.from_iterable(cut), COLUMNS)

Needs the extra `testing`, which `ingest.testing` itself does not.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from types import MappingProxyType
from typing import Any

from hypothesis import strategies as st

from ingest.testing.oracle import UNAVAILABLE, Event, Op, Row
from ingest.testing.statements import Kind, Statement, changelog, meet

Columns = Mapping[str, st.SearchStrategy[Any]]
COLUMNS: Columns = MappingProxyType(
    {
        "plain": st.sampled_from(["x", "y", None]),
        "number": st.integers(0, 9),
        "toasted": st.sampled_from(["long", "longer", "longest", None]),
    }
)
"""The columns beside the key, and their values: the same columns as those of `changelogs.COLUMNS`."""

_FREE: tuple[Kind, ...] = ("write", "delete", "null", "move", "read")
# Without a null tombstone alone, which deletes a row at that row's own position (`statements` says why not).
_CARRYING: tuple[Kind, ...] = ("write", "delete", "move", "move in two events", "read")
# What a source sends after a delete begins with a whole image; until that has come, a value out of an image before
# may be forgotten. So images before stand only where nothing is deleted.
_WITH_BEFORES: tuple[Kind, ...] = ("write", "read")


def changelogs(
    columns: Columns = COLUMNS,
    unavailable: Collection[str] = ("toasted",),
    keys: int = 3,
    statements: int = 12,
    truncates: bool = False,
) -> st.SearchStrategy[list[Event]]:
    """What a source says of a table with a key, in the order in which its transactions commit; no fault yet.

    Positions go back and forth, but never for one key, and some are shared (a COPY, the reads of a snapshot). The keys
    are 0, 1, …; rows may be older than the changelog. Only columns in `unavailable` are ever left out of an image.
    A changelog with images before deletes nothing. One in which a row moves and takes along what its image lacks, and
    its old key is written again, goes by position: `c0@10(x,3,long) d0>1@20 c1@20(y,3,?) c0@30(x,4,~)`.
    A truncate concerns whatever is in the table: give each changelog that may have one a table of its own. Raises
    ValueError where `unavailable` names what is no column."""
    if not set(unavailable) <= set(columns):
        raise ValueError(f"unavailable={unavailable!r}: name some of the columns {[*columns]}, or none: ()")
    modes = [_FREE, _CARRYING] if truncates else [_FREE, _CARRYING, _WITH_BEFORES]
    row = st.fixed_dictionaries(dict(columns))
    names = st.sampled_from([(), *((name,) for name in unavailable), tuple(unavailable)])
    older = st.fixed_dictionaries({}, optional=dict.fromkeys(range(keys), row))

    def of(kinds: tuple[Kind, ...]) -> st.SearchStrategy[list[Event]]:
        one = _statement((*kinds, "truncate") if truncates else kinds, row, names, keys)
        said = st.lists(one, min_size=1, max_size=statements)
        return st.builds(changelog, said, older, st.just(keys), st.just(kinds is _CARRYING)).filter(bool)

    return st.one_of(*map(of, modes))


def bags(columns: Columns = COLUMNS, statements: int = 12) -> st.SearchStrategy[list[Event]]:
    """What a source says of a table without a key: whole images, before and after. Equal rows may stand at one
    position, as a COPY sends them: `c@10(x,3,~) c@10(x,3,~) d@20[x,3,~]`. The table is what `fold_bag` says of this,
    not of a delivery of it, where an event may stand twice."""
    row, which, once = st.fixed_dictionaries(dict(columns)), st.integers(0, 9), st.just(1)
    create = st.tuples(row, st.none(), st.integers(1, 3))
    change = st.tuples(row, which, once) | st.tuples(st.none(), which, once)
    return st.lists(st.none() | create | change, min_size=1, max_size=statements).map(_bag).filter(bool)


@st.composite
def deliveries(draw: st.DrawFn, events: Sequence[Event]) -> list[Event]:
    """The events of a changelog as a transport may deliver them, numbered anew: some twice, runs once more (a connector
    that starts again goes back a little), and, where no event needs that others came before it, in another order.
    `fold` of it is `fold` of `events`.

    `c0@10(x,3,long) d0@20 null0` may come as `d0@20 null0 c0@10(x,3,long) d0@20 null0`: a null tombstone stands after
    the change before it. What concerns one key at one position stays in order. Of a table without a key only runs come
    again, each from the beginning of a position and after another one."""
    alone, units = _units(sorted(events, key=lambda e: e.offset))
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
    # After any change of its key, a null tombstone that nothing preceded would be that change's.
    return _numbered([*alone, *sent])


@st.composite
def batches(draw: st.DrawFn, events: Sequence[Event]) -> list[list[Event]]:
    """The events in consecutive batches, none of them empty: `[[a, b], [c]]` of `[a, b, c]`."""
    ends = [at for at in range(1, len(events)) if draw(st.booleans())]
    return [[*events[start:end]] for start, end in pairwise([0, *ends, len(events)]) if start < end]


def _statement(
    kinds: Collection[Kind], row: st.SearchStrategy[Row], names: st.SearchStrategy[tuple[str, ...]], keys: int
) -> st.SearchStrategy[Statement | None]:
    key, tombstone = st.integers(0, keys - 1), st.booleans()
    held = st.sampled_from([0, 0, None] if "move in two events" in kinds else [0, 0, None, 1, 2, 4])
    before = st.none() if "delete" in kinds else st.none() | names
    more: dict[Kind, dict[str, st.SearchStrategy[Any]]] = {
        "write": {"row": row, "unsent": names, "before": before},
        "delete": {"tombstone": tombstone},
        "move": {"row": row, "unsent": names, "target": key},
        "move in two events": {"row": row, "unsent": names, "target": key, "tombstone": tombstone},
    }
    of = [
        st.builds(Statement, st.just(kind), key, held=held, **more.get(kind, {})) for kind in ("write", "write", *kinds)
    ]
    # None comes first: what takes many choices is left out only where something simpler can stand for it.
    return st.one_of(st.none(), *of)


def _bag(said: Sequence[tuple[Row | None, int | None, int] | None]) -> list[Event]:
    """Of each statement: the new row, which of the rows it takes the place of, and how many times it is there."""
    rows: list[Row] = []
    events: list[Event] = []
    for lsn, (new, which, times) in enumerate(filter(None, said), start=1):
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
    """Null tombstones that nothing precedes; and the rest in the smallest units whose events stay in order: what stands
    at one position and concerns one key, with the null tombstones that follow it."""
    alone: list[Event] = []
    units: list[tuple[tuple[int, bool], list[Event]]] = []
    newest: dict[Hashable, tuple[int, bool]] = {}
    for event in events:
        place = newest.get(event.key) if event.op == "null" else (event.lsn, event.op == "r")
        if place is None:
            alone.append(event)
            continue
        newest[event.key] = place
        near = [unit for unit in units if unit[0] == place and meet(unit[1], [event])]
        whole = sorted([*chain.from_iterable(unit for _, unit in near), event], key=lambda e: e.offset)
        units = [*(unit for unit in units if unit not in near), (place, whole)]
    return alone, sorted((unit for _, unit in units), key=lambda unit: unit[0].offset)


def _needs_order(events: Sequence[Event]) -> bool:
    """Whether an event needs that others came before it: a delete, where images before stand for what was not sent; or
    a move, where the row's old key is written again and what the row held is not known any more."""
    deletes = any(e.op in ("d", "null", "t") or e.old_key is not None for e in events)
    moved = {e.key if e.new_key is not None else e.old_key: e.lsn for e in reversed(events) if _takes_along(e)}
    again = any(e.op in ("c", "u", "r") and e.lsn > moved.get(e.key, e.lsn) for e in events)
    return again or (deletes and any(e.before is not None for e in events))


def _takes_along(event: Event) -> bool:
    """Whether a row moves by it to a key of which the images may lack what it held."""
    return event.new_key is not None or (event.old_key is not None and UNAVAILABLE in event.image.values())


def _may_begin(sent: Sequence[Event], at: int, until: int, keyed: bool) -> bool:
    """Whether, after the first `until` events, those from `at` on may come again."""
    if not keyed:
        return sent[at].lsn != sent[until - 1].lsn and (at == 0 or sent[at - 1].lsn != sent[at].lsn)
    changed: set[Hashable] = set()
    for event in sent[at:]:
        if event.op != "null":
            changed.add(event.key)
        elif event.key not in changed:
            return False  # It would stand after whatever came last of its key.
    return True
