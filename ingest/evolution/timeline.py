"""Combines told and seen versions of a table's definition into one, in the order of their positions."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from ingest.evolution.definition import Cause, ColumnDefinition, Definition, Origin, Place, Version, source_place
from ingest.names import caseless

_RANKS = {origin: rank for rank, origin in enumerate(Origin)}


def combined(versions: Collection[Version]) -> tuple[Version, ...]:
    """Returns the versions by position, as they hold.

    From a told version on, up to the next one, it says which columns exist, their numbers, fills and key; other
    versions there only show types as they are in events, and columns that no message has ever named: the connector adds
    these. From a message on that can't be read, events show all again, as they do after a drop until another table is
    told. A version from the source's catalog comes before that of the event at its position. Duplicate deliveries of a
    message are one version."""
    found: list[Version] = []
    told: Version | None = None
    early: list[Version] = []
    named = {caseless(c.name) for v in versions if v.origin is Origin.TOLD for c in v.definition.columns}
    for version in _in_order(versions):
        if version.cause.is_unreadable or version.cause.drops_table:
            found += early
            early = []
        if version.cause.is_unreadable:
            told = None
        elif version.origin is Origin.TOLD:
            told = version
            found.append(version if told.cause.drops_table else _with_added(told, found[-1:], named))
            if not told.cause.drops_table:
                # CREATE TABLE AS writes rows before its message.
                found += [_typed(told, replace(shown, since=told.since), named) for shown in early]
                early = []
        elif told is not None:
            if told.cause.drops_table:
                early.append(version)
            else:
                found.append(_typed(told, version, named))
        else:
            found.append(version)
    return (*found, *early)


def _with_added(told: Version, before: Iterable[Version], named: Collection[str]) -> Version:
    """Returns a told version with the columns of the one before it that no message has ever named."""
    added = tuple(c for one in before for c in one.definition.columns if caseless(c.name) not in named)
    if not added:
        return told
    return replace(told, definition=replace(told.definition, columns=(*told.definition.columns, *added)))


def _in_order(versions: Collection[Version]) -> list[Version]:
    """Returns the versions without equal ones by position, then by origin, then by any order that is always the same.
    Of a message that was delivered repeatedly, so that its offsets alone differ, the first one stays."""
    by_place: dict[tuple[Place, int], set[Version]] = {}
    for version in versions:
        by_place.setdefault((version.since, _RANKS[version.origin]), set()).add(version)
    found: list[Version] = []
    delivered: set[tuple[Place, Definition, Cause]] = set()
    for at in sorted(by_place):
        same = by_place[at]
        for version in sorted(same, key=repr) if len(same) > 1 else same:
            delivery = (source_place(version.since), version.definition, version.cause)
            if version.origin is not Origin.TOLD or delivery not in delivered:
                found.append(version)
            if version.origin is Origin.TOLD:
                delivered.add(delivery)
    return found


def _typed(told: Version, shown: Version, named: Collection[str]) -> Version:
    """Returns the definition of `told` with the types that an event shows, from the event's position on, and with its
    columns that no message has ever named."""
    types = {caseless(column.name): column for column in shown.definition.columns}
    columns = tuple(_with_type(column, types.get(caseless(column.name))) for column in told.definition.columns)
    added = tuple(column for column in shown.definition.columns if caseless(column.name) not in named)
    definition = replace(told.definition, columns=(*columns, *added))
    return Version(shown.since, definition, Origin.SEEN)


def _with_type(told: ColumnDefinition, shown: ColumnDefinition | None) -> ColumnDefinition:
    return replace(told, type=None if shown is None else shown.type)
