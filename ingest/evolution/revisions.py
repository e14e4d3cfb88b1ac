"""How stored rows become those of the table's newest definition, and where that takes reading the events again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby

from ingest.evolution.definition import NULL, UNKNOWN, Fill, Place, is_at_or_above
from ingest.evolution.life import Life, Lives, TypeStep
from ingest.evolution.readings import Means, means
from ingest.evolution.type_steps import are_lost, are_reversible, keep_values, not_passed
from ingest.names import caseless


class Source(StrEnum):
    """Where a revised value comes from."""

    STORED = "the stored value of one column"
    CONSTANT = "a fill, or null"
    NOWHERE = "no value: it waits as one that the source did not send"
    EVENTS = "the events: stored rows have lost it"


@dataclass(frozen=True)
class Piece:
    """How values at one range of positions are revised: at and above `begin`, below `end`; None for no bound.

    Attributes:
        begin, end: the range of the value's own position, as it is stored.
        source: where the new value comes from.
        fill: of CONSTANT, the value.
        types: the first is that of the value, the others are those that it passes; of STORED empty if it passes none.
        undone: of STORED, the types that the value has passed but has not had at the source, from its own one on.
        other: another stored column than that of the revision, which holds the values of these positions; by the
            position of the row. None if there is none.
    """

    begin: Place | None
    end: Place | None
    source: Source
    fill: Fill = NULL
    types: tuple[TypeStep, ...] = ()
    undone: tuple[TypeStep, ...] = ()
    other: str | None = None


AS_STORED = (Piece(None, None, Source.STORED),)
"""The pieces of a column whose values stay."""


@dataclass(frozen=True)
class ColumnRevision:
    """How a column of silver is revised.

    Attributes:
        column: the name afterwards.
        stored: the stored column that holds its values, by whose positions the pieces apply; None for none: then by the
            position of the row.
        pieces: by position, without gaps.
    """

    column: str
    stored: str | None
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class LostRange:
    """A range of positions, at and above `begin`, below `end`, whose values in a stored column can't be revised.

    Attributes:
        stored: the stored column; None for the positions of rows.
        is_gone: rows of the range have been deleted, so that none can be found.
        is_of_keys: it concerns what tombstones hold, too.
        if_partial: values are lost only in rows with columns older than themselves.
    """

    stored: str | None
    begin: Place | None
    end: Place | None
    is_gone: bool = False
    is_of_keys: bool = False
    if_partial: bool = False


@dataclass(frozen=True)
class Refold:
    """Why a table may have to be read from its events again: if any stored value lies in one of the ranges, or if rows
    of one of them have been deleted."""

    reason: str
    ranges: tuple[LostRange, ...]


def revisions(before: Lives, after: Lives) -> tuple[ColumnRevision, ...]:
    """Returns the revision of each column of silver from one state of knowledge to the next. Values whose types can be
    undone are stored ones.

    Rows last written below `after.begin` go; a value from below it in a newer row is one that waits. Of a column that
    was not stored, values are those of rows from before it."""
    bounds = _bounds(before, after)
    return tuple(_revision(before, after, life, bounds) for life in after.shown.values())


def altered_columns(before: Lives, after: Lives, keeps_dropped: bool = True) -> tuple[ColumnRevision, ...]:
    """Returns the revisions of columns in which some stored value becomes another one. In their pieces a constant that
    is stored already is a stored value, and so are one that only the events would tell and one in a wider type.

    `keeps_dropped`: rows that were not written since a drop keep the column's values; else it becomes null in all."""
    bounds = _bounds(before, after)
    found = []
    for life in after.shown.values():
        if life.end is not None and not keeps_dropped:
            old = before.shown.get(life.column)
            if old is not None and old.end is None:
                emptied = Piece(None, None, Source.CONSTANT)
                found.append(ColumnRevision(life.column, life.column, (emptied,)))
            continue
        stored = _stored(before, after, life, bounds)
        found_pieces = (_piece(before, after, life, stored, *b) for b in bounds)
        known = (_recovered(before, after, life, stored, piece) for piece in found_pieces)
        pieces = tuple(_joined(_kept(before, after, life, piece) for piece in known))
        if stored is None and life.column in before.shown:
            stored = life.column
        is_renamed = stored not in (None, life.column)
        if is_renamed or any(_alters(piece, stored) for piece in pieces):
            found.append(ColumnRevision(life.column, stored, pieces))
    return tuple(found)


def _recovered(before: Lives, after: Lives, life: Life, stored: str | None, piece: Piece) -> Piece:
    """Returns a piece of lost values as one of stored values if another column holds them, or if the types that they
    have passed can be undone."""
    if piece.source is not Source.EVENTS or stored is None or piece.other is None:
        return _undone(before, after, life, stored, piece)
    types = _types_left(before.shown[piece.other], life, piece.begin)
    return piece if types is None else replace(piece, source=Source.STORED, types=types)


def _undone(before: Lives, after: Lives, life: Life, stored: str | None, piece: Piece) -> Piece:
    """Returns a piece of lost values as one of stored values if the types that these have passed can be undone."""
    if piece.source is not Source.EVENTS or stored is None or _holder(before, after, life, piece.begin) != stored:
        return piece
    passed = before.shown[stored].later_types(piece.begin)
    if not are_reversible(passed):
        return piece
    return Piece(piece.begin, piece.end, Source.STORED, NULL, life.later_types(piece.begin), passed)


def _alters(piece: Piece, stored: str | None) -> bool:
    if piece.source is Source.STORED:
        return bool(piece.types) or piece.other is not None
    return stored is not None or piece.fill.column is not None


def _kept(before: Lives, after: Lives, life: Life, piece: Piece) -> Piece:
    """Returns the piece as one of stored values if these stay as they are."""
    old, at = before.shown.get(life.column), piece.begin
    is_kept = piece.source in (Source.EVENTS, Source.STORED)
    if old is not None and piece.source is Source.CONSTANT:
        # Events from after a drop lack the column, also those that were read before the drop was known.
        is_dropped = means(after, life, at) is Means.NULL and means(before, old, at) is Means.VALUE
        constant = _constant(before, old, at)
        is_same = constant is not None and constant.column == piece.fill.column  # An unknown one is null here.
        is_same &= keep_values(life.types) or old.types == life.types
        is_kept = is_dropped or is_same
    elif piece.source is Source.STORED:
        is_kept = keep_values(piece.types) and keep_values(piece.undone)
    return Piece(piece.begin, piece.end, Source.STORED, other=piece.other) if is_kept else piece


def _constant(before: Lives, old: Life, at: Place | None) -> Fill | None:
    """Returns the constant that a column has at a position; None if it has values of events."""
    match means(before, old, at):
        case Means.NULL:
            return NULL
        case Means.FILL:
            return UNKNOWN if old.loses(at) else old.fill
        case _:
            return None


def needs_refold(before: Lives, after: Lives, through: Place | None = None) -> Refold | None:
    """Returns the ranges of positions in which stored rows can't be revised exactly; None if there are none.

    `through`: the highest position of any stored row or tombstone; None if not known: then positions above are among
    the ranges, in which nothing is stored if versions arrive in the source's order."""
    if before == after:
        return None
    bounds = _bounds(before, after)
    gone = [LostRange(None, *b, is_gone=True) for b in bounds if _is_back(before, after, b[0])]
    keys = [LostRange(None, *b, is_of_keys=True) for b in bounds if _is_other_key(before, after, b[0])]
    found_pieces = [(one, piece) for one in revisions(before, after) for piece in one.pieces]
    values = [
        LostRange(revision.stored, piece.begin, piece.end, if_partial=piece.other is not None)
        for revision, piece in found_pieces
        if piece.source is Source.EVENTS
    ]
    # Rows of one key were told apart by two columns that turn out to be one.
    parted = [
        LostRange(None, piece.begin, piece.end, is_of_keys=True)
        for revision, piece in found_pieces
        if piece.other is not None and revision.column in _key_columns(after)
    ]
    reasons = {
        "rows of a dropped table are back": gone,
        "rows had another key": [*keys, *parted],
        "values are lost": values,
    }
    reached = {
        reason: [one for one in ranges if through is None or one.begin is None or one.begin <= through]
        for reason, ranges in reasons.items()
    }
    found = {reason: ranges for reason, ranges in reached.items() if ranges}
    every = tuple(dict.fromkeys(one for ranges in found.values() for one in ranges))
    return Refold(", ".join(found), every) if found else None


Bounds = tuple[Place | None, Place | None]


def _bounds(before: Lives, after: Lives) -> tuple[Bounds, ...]:
    """Returns the ranges of positions within which nothing changes in either."""
    places = sorted({*before.places, *after.places})
    return tuple(zip((None, *places), (*places, None), strict=True))


def _is_back(before: Lives, after: Lives, at: Place | None) -> bool:
    return is_at_or_above(at, after.begin) and not is_at_or_above(at, before.begin)


def _is_other_key(before: Lives, after: Lives, at: Place | None) -> bool:
    old, new = before.key_names(at), after.key_names(at)
    if old is None or new is None or not is_at_or_above(at, after.begin):
        return False
    return {*map(caseless, old)} != {*map(caseless, new)}


def _key_columns(now: Lives) -> set[str]:
    return {now.columns[number].column for era in now.keys for number in era.lives}


def _revision(before: Lives, after: Lives, life: Life, bounds: tuple[Bounds, ...]) -> ColumnRevision:
    stored = _stored(before, after, life, bounds)
    pieces = (_piece(before, after, life, stored, *b) for b in bounds)
    known = (_undone(before, after, life, stored, piece) for piece in pieces)
    return ColumnRevision(life.column, stored, tuple(_joined(known)))


def _stored(before: Lives, after: Lives, life: Life, bounds: tuple[Bounds, ...]) -> str | None:
    holders = (_holder(before, after, life, at) for at, _ in bounds)
    return next((holder for holder in holders if holder is not None), None)


def _holder(before: Lives, after: Lives, life: Life, at: Place | None) -> str | None:
    """Returns the stored column that holds a life's values from events at a position."""
    if means(after, life, at) is not Means.VALUE:
        return None
    name = life.name(at)
    named = (column for column, old in before.shown.items() if caseless(old.name(at)) == caseless(name))
    same = (column for column in named if before.shown[column].is_alive(at))
    return next((column for column in same if means(before, before.shown[column], at) is Means.VALUE), None)


def _piece(
    before: Lives, after: Lives, life: Life, stored: str | None, begin: Place | None, end: Place | None
) -> Piece:
    match means(after, life, begin):
        case Means.GONE:
            return Piece(begin, end, Source.NOWHERE)
        case Means.NULL:
            return Piece(begin, end, Source.CONSTANT)
        case Means.FILL if life.loses(begin):
            return Piece(begin, end, Source.CONSTANT, UNKNOWN)
        case Means.FILL:
            return Piece(begin, end, Source.CONSTANT, life.fill, life.types)
        case _ if stored is None or _holder(before, after, life, begin) != stored:
            return Piece(begin, end, Source.EVENTS, other=_holder(before, after, life, begin))
        case _ if life.loses(begin):
            return Piece(begin, end, Source.CONSTANT, UNKNOWN)
    old = before.shown[stored]
    types = _types_left(old, life, begin)
    return Piece(begin, end, Source.EVENTS) if types is None else Piece(begin, end, Source.STORED, types=types)


def _types_left(old: Life, life: Life, at: Place | None) -> tuple[TypeStep, ...] | None:
    """Returns the type of a stored value of `old` and those of `life` that it has not passed yet; () if there are none
    of these; None if it has passed others, or if its form doesn't tell what the value of the event does."""
    passed, types = old.later_types(at), life.later_types(at)
    rest = None if old.loses(at) else not_passed(passed, types)
    left = (passed[-1], *rest) if rest else ()
    return None if rest is None or (are_lost(left) and not are_lost(types)) else left


def _joined(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """Returns the pieces, neighbours that do the same as one."""
    for _, group in groupby(pieces, key=_way):
        same = list(group)
        yield replace(same[0], end=same[-1].end)


def _way(piece: Piece) -> tuple[object, ...]:
    return piece.source, piece.fill, piece.types, piece.undone, piece.other
