"""The lives of a table's columns and keys: ranges of positions. A value belongs to the life of its column at its own
position."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from ingest.evolution.changes import AlterType, SchemaChange
from ingest.evolution.definition import Fill, FillKind, Origin, Place, is_at_or_above
from ingest.names import caseless
from ingest.values.types import LogicalType


@dataclass(frozen=True)
class TypeStep:
    """A type of a life.

    Attributes:
        since: the position from which events have it; None if from the first one.
        type: of values in events; None until an event shows it.
        source_type: the type's name at the source; empty if not known.
        is_shown: an event has shown `type`; else the source's message implies it.
        is_unknown: values from before were computed by an expression that only the source knows.
        zone: the time zone by which the source converted values from before.
    """

    since: Place | None
    type: LogicalType | None
    source_type: str = ""
    is_shown: bool = True
    is_unknown: bool = False
    zone: str = "UTC"


@dataclass(frozen=True)
class NameStep:
    """A name that a life has in events from `since` on; None if from the first one."""

    since: Place | None
    name: str


@dataclass(frozen=True)
class Life:
    """One column from the position at which it was added to that at which it was dropped.

    Attributes:
        column: the name in silver: its newest one.
        number: the attribute number; None if not known.
        begin: the lowest position that has it; None if no version is without it before.
        end: the lowest position above `begin` that lacks it; None if it is alive.
        fill: what values from below `begin` read.
        types: by position; the first is that at `begin`. Values pass all later ones in this order.
        names: by position.
        origin: how `begin` is known.
    """

    column: str
    number: int | None
    begin: Place | None
    end: Place | None
    fill: Fill
    types: tuple[TypeStep, ...]
    names: tuple[NameStep, ...]
    origin: Origin

    def is_alive(self, at: Place | None) -> bool:
        """Returns True if an event at this position has the column. None is below every position."""
        return is_at_or_above(at, self.begin) and (self.end is None or not is_at_or_above(at, self.end))

    def name(self, at: Place | None) -> str:
        """Returns the column's name in events at a position of the life; below it, the first one."""
        return self.names[max(len(_in_force(self.names, at)), 1) - 1].name

    def later_types(self, at: Place | None) -> tuple[TypeStep, ...]:
        """Returns the type of a value at a position and those that it passes until today; all of them below `begin`."""
        return self.types[max(len(_in_force(self.types, at)), 1) - 1 :]

    @property
    def unknown_below(self) -> Place | None:
        """The position below which rows have values that only the source knows; None if there is none."""
        added = self.begin if self.fill.kind is FillKind.UNKNOWN else None
        computed = (step.since for step in self.types[1:] if step.is_unknown)
        return max((at for at in (added, *computed) if at is not None), default=None)

    def loses(self, at: Place | None) -> bool:
        """Returns True if an expression that only the source knows computed anew what was written at a position."""
        return any(step.is_unknown for step in self.later_types(at)[1:])


@dataclass(frozen=True)
class KeyEra:
    """A key and the range of positions in which it tells rows apart: at and above `begin`, below `end`.

    Attributes:
        columns: names of the key columns in silver; () if rows have no key.
        lives: their lives, as indices of `Lives.columns`; a column of an older key may not be shown any more.
        begin: None if no version has another key before.
        end: None if the key is in force.
        origin: how `begin` is known.
    """

    columns: tuple[str, ...]
    lives: tuple[int, ...]
    begin: Place | None
    end: Place | None
    origin: Origin


@dataclass(frozen=True)
class PlacedChange:
    """A change of the definition, where it takes effect, and how it is known."""

    at: Place
    change: SchemaChange
    origin: Origin


@dataclass(frozen=True)
class Lives:
    """What is known of a table: a function of the set of its versions.

    Attributes:
        columns: all lives, those of one name in the order of their ends.
        keys: eras in the order of positions; empty if no version tells the key.
        changes: by position.
        begin: the position at which the relation was dropped or created anew; rows last written below it are gone.
    """

    columns: tuple[Life, ...] = ()
    keys: tuple[KeyEra, ...] = ()
    changes: tuple[PlacedChange, ...] = ()
    begin: Place | None = None

    @cached_property
    def shown(self) -> Mapping[str, Life]:
        """Silver's columns: all that exist, and those that are gone and whose name, compared without regard to case, no
        other column has had since. Rows that were not written since hold values of these."""
        return {life.column: life for life in self.columns if life.end is None or not self._is_replaced(life)}

    def _is_replaced(self, gone: Life) -> bool:
        """Returns True if another life has had the name of one that is gone, so that rows hold no values of it."""
        name, end = caseless(gone.column), gone.end
        taken = (step.since for life in self.columns for step in life.names if caseless(step.name) == name)
        return any(since is not None and is_at_or_above(since, end) for since in taken)

    @cached_property
    def unknown_below(self) -> Mapping[str, Place]:
        """Columns that exist → the position below which rows have values in them that only the source knows."""
        found = {column: life.unknown_below for column, life in self.shown.items() if life.end is None}
        return {column: at for column, at in found.items() if at is not None}

    @cached_property
    def assumed_below(self) -> Mapping[str, Place]:
        """Columns that exist → the position below which rows have values in them that follow from schemas of events
        alone: a default, which may be a function's; null in a column that may have had another name; a value of an
        older type, which the source may have computed anew by an expression."""
        found = dict[str, Place]()
        for column, life in self.shown.items():
            is_default = life.origin is Origin.SEEN and life.fill.kind is FillKind.CONSTANT
            added = life.begin if is_default else self.untold_below.get(column)
            places = [at for at in (added, *self._retyped(life)) if at is not None]
            if life.end is None and places:
                found[column] = max(places)
        return {column: at for column, at in found.items() if self.unknown_below.get(column) != at}

    def _retyped(self, life: Life) -> Iterator[Place]:
        """Yields the positions at which events show another type of a column of which no message tells."""
        for placed in self.changes:
            change, is_shown = placed.change, placed.origin is Origin.SEEN and life.number is None
            is_own = isinstance(change, AlterType) and change.column == life.column and life.is_alive(placed.at)
            if is_shown and is_own:
                yield placed.at

    @cached_property
    def untold_below(self) -> Mapping[str, Place]:
        """Columns that exist → the position below which a row may have another value in them than is known: those of
        `unknown_below`, and columns that were first seen where another one was gone. That one may have got another
        name."""
        ends = {life.end for life in self.columns}
        seen = {c: life.begin for c, life in self.shown.items() if life.end is None and life.origin is Origin.SEEN}
        renamed = {column: at for column, at in seen.items() if at is not None and at in ends}
        return {c: max(at, self.unknown_below.get(c, at)) for c, at in {**self.unknown_below, **renamed}.items()}

    @cached_property
    def named(self) -> Mapping[str, tuple[Life, ...]]:
        """All lives by each name that they have had, in `caseless` form."""
        found: dict[str, dict[int, Life]] = {}
        for number, life in enumerate(self.columns):
            for step in life.names:
                found.setdefault(caseless(step.name), {})[number] = life
        return {name: tuple(same.values()) for name, same in found.items()}

    @cached_property
    def are_told(self) -> bool:
        """True if the source told any of it, by attribute number."""
        return any(life.number is not None for life in self.columns)

    def key_at(self, at: Place | None) -> KeyEra | None:
        """Returns the key in force at a position; None if none is known."""
        return next((era for era in reversed(self.keys) if is_at_or_above(at, era.begin)), None)

    def key_names(self, at: Place | None) -> tuple[str, ...] | None:
        """Returns the names in events of the key columns in force at a position; None if no key is known."""
        era = self.key_at(at)
        return None if era is None else tuple(self.columns[life].name(at) for life in era.lives)

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """The positions at which anything changes, in order."""
        return tuple(sorted(set(self._places())))

    def _places(self) -> Iterator[Place]:
        if self.begin is not None:
            yield self.begin
        for life in self.columns:
            bounds = (life.begin, life.end, *(step.since for step in life.names), *(step.since for step in life.types))
            yield from (at for at in bounds if at is not None)
        yield from (era.begin for era in self.keys if era.begin is not None)


Step = TypeVar("Step", NameStep, TypeStep)


def _in_force(steps: tuple[Step, ...], at: Place | None) -> tuple[Step, ...]:
    """Returns the steps up to the one that is in force at a position."""
    return tuple(step for step in steps if is_at_or_above(at, step.since))
