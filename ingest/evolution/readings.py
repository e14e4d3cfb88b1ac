"""How to read events of one range of positions as rows of the table as it is now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from ingest.evolution.definition import NULL, UNKNOWN, Fill, Place, is_at_or_above
from ingest.evolution.life import Life, Lives, TypeStep
from ingest.names import caseless
from ingest.values.columns import Column


@dataclass(frozen=True)
class PlaceRange:
    """The positions from `first` to `last`, both included."""

    first: Place
    last: Place


@dataclass(frozen=True)
class Reading:
    """How to read events of a range of positions.

    Attributes:
        names: the event's column → silver's.
        lacking: silver column → its value in rows of these events, in the form of the first type of its chain.
        chains: silver column → the types that its value passes. The first is the type of the value at its position, by
            all that is known; the event's own may be a narrower form of it. A value that passes a step which is unknown
            is known to the source only, but one that the source did not send is still not sent.
        is_gone: the relation of these events was dropped: they leave no rows.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    lacking: Mapping[str, Fill] = field(default_factory=dict)
    chains: Mapping[str, tuple[TypeStep, ...]] = field(default_factory=dict)
    is_gone: bool = False


class Means(StrEnum):
    """How a silver column gets its value from an event at a position."""

    VALUE = "value of the event"
    FILL = "value of rows from before the column"
    NULL = "null: the column was gone"
    GONE = "no value: the relation was dropped since"


def means(now: Lives, life: Life, at: Place | None) -> Means:
    """Returns how a life gets its value from an event at a position. None is below every position."""
    if not is_at_or_above(at, now.begin):
        return Means.GONE
    if is_at_or_above(at, life.begin) and not life.is_alive(at):
        return Means.NULL
    return Means.VALUE if life.is_alive(at) else Means.FILL


def boundaries(now: Lives, first: Place, last: Place) -> tuple[Place, ...]:
    """Returns the positions above `first`, up to `last`, at which the reading of events changes: each begins a part
    that has to be read on its own."""
    return tuple(at for at in now.places if first < at <= last)


def reading(now: Lives, arrived: Sequence[Column], within: PlaceRange) -> Reading:
    """Returns how to read events with the columns `arrived` at positions `within`. Raises ValueError if `boundaries`
    divides the range.

    A column of the event that belongs to no life that is shown is not read. A column that an event should have, but
    lacks, is null, as without a schema."""
    if boundaries(now, within.first, within.last):
        raise ValueError(f"positions from {within.first} to {within.last} are read in more than one way")
    names: dict[str, str] = {}
    lacking: dict[str, Fill] = {}
    chains: dict[str, tuple[TypeStep, ...]] = {}
    events_names = {caseless(column.name): column.name for column in arrived}
    for column, life in now.shown.items():
        match means(now, life, within.first):
            case Means.VALUE if caseless(life.name(within.first)) in events_names:
                names[events_names[caseless(life.name(within.first))]] = column
                chains[column] = life.later_types(within.first)
            case Means.VALUE | Means.FILL if life.loses(within.first):
                lacking[column] = UNKNOWN
            case Means.FILL:
                lacking[column] = life.fill
                chains[column] = life.types
            case Means.GONE:
                return Reading(is_gone=True)
            case _:
                lacking[column] = NULL
    return Reading(names, lacking, chains)
