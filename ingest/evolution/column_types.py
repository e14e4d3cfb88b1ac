"""Types of a table's columns that change to one which can't hold the values before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ingest.evolution.definition import Place
from ingest.evolution.life import Life, Lives
from ingest.evolution.policies import IncompatibleType, TableColumn
from ingest.evolution.type_steps import stored_type
from ingest.names import caseless
from ingest.values.types import LogicalType, widest


def with_newest_types(columns: Sequence[TableColumn], now: Lives) -> tuple[TableColumn, ...]:
    """Returns the columns with the types that their lives tell, where these are not just the widest of all types that a
    column has had: its type was changed to another one, its name belonged to another column before, or events show the
    type that a message told in another form."""
    return tuple(replace(column, type=_type(column, now) or column.type) for column in columns)


def _type(column: TableColumn, now: Lives) -> LogicalType | None:
    life = now.shown.get(column.name)
    if life is None or column.inferred or column.declared or column.sealed is not None:
        return None
    found, is_other = stored_type(life.types)
    is_other_form = found is not None and widest(column.type, found) is None
    return found if is_other or is_other_form or _has_predecessor(life, now) else None


def _has_predecessor(life: Life, now: Lives) -> bool:
    name = caseless(life.column)
    return any(one is not life and caseless(step.name) == name for one in now.columns for step in one.names)


def unreadable(
    retyped: Iterable[IncompatibleType], now: Lives, first: Place, last: Place
) -> tuple[IncompatibleType, ...]:
    """Returns those columns of events at positions from `first` to `last` whose type in the events isn't that of the
    table at these positions, as far as it is known."""
    found = []
    for one in retyped:
        life = now.shown.get(one.column)
        types = [life.later_types(at)[0].type for at in (first, last) if life is not None and life.is_alive(at)]
        if any(type_ is not None and widest(one.in_event, type_) is None for type_ in types):
            found.append(one)
    return tuple(found)
