"""Follows what messages tell to have another name: relations from table to table, columns and keys within one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from ingest.changelog.spelling import Spelling
from ingest.evolution.definition import DROP_TABLE, RENAME_TABLE, Cause, Definition, Origin, Place, Version
from ingest.evolution.life import Life, Lives
from ingest.evolution.policies import TableColumn
from ingest.evolution.readings import boundaries
from ingest.evolution.type_steps import stored_type
from ingest.names import caseless
from ingest.values.columns import Column

Key = tuple[str, ...]


def in_table_names(versions: Iterable[Version], spelling: Spelling, stored: Collection[str]) -> frozenset[Version]:
    """Returns versions with the names that their columns have in the table. `stored`: the columns that it has."""
    return frozenset(_in_table_names(version, spelling, stored) for version in versions)


def _in_table_names(version: Version, spelling: Spelling, stored: Collection[str]) -> Version:
    definition = version.definition
    names = spelling.table_names([column.name for column in definition.columns], stored)
    columns = tuple(replace(column, name=names[column.name]) for column in definition.columns)
    key = None if definition.key is None else tuple(names.get(name, name) for name in definition.key)
    return replace(version, definition=replace(definition, columns=columns, key=key))


def columns_now(
    arrived: Sequence[Column], names: Mapping[str, str], now: Lives, first: Place, last: Place
) -> tuple[Column, ...]:
    """Returns the columns of events at positions from `first` to `last` by the names that the table has now, without
    those that it doesn't show. `names`: column of the event → column of the table as it was then."""
    found: dict[str, Column] = {}
    for column in arrived:
        for name in _names_now(names[column.name], now, first, last):
            spelled = column if caseless(name) == caseless(names[column.name]) else replace(column, name=name)
            found.setdefault(caseless(name), spelled)
    return tuple(found.values())


def key_now(key: Key, now: Lives, first: Place, last: Place) -> Key | None:
    """Returns the names that the columns of a key of events have now; None if the table doesn't show one of them, or if
    they are different columns within the range of positions."""
    found = [_names_now(name, now, first, last) for name in key]
    return tuple(names[0] for names in found) if all(len(names) == 1 for names in found) else None


def keeps_name(name: str, now: Lives) -> bool:
    """Returns False if the columns that had a name have another one now, or none. An event above all known messages
    that has a column of this name shows one whose own message is still to come. True if the whole table is gone: then
    no message tells yet of the table that follows it."""
    current = name_now(name, now)
    is_same = current is not None and caseless(current) == caseless(name)
    return is_same or all(life.end is not None for life in now.columns)


def _names_now(name: str, now: Lives, first: Place, last: Place) -> tuple[str, ...]:
    """Returns the names in the table of the columns that events name `name`; the name itself if no version has it, as
    one that the connector adds."""
    same = now.named.get(caseless(name))
    if same is None:
        return (name,)
    places = (first, *boundaries(now, first, last))
    found = (life for life in same for at in places if _is_shown(life, now) and _has_name(life, name, at))
    return tuple(dict.fromkeys(life.column for life in found))


def _is_shown(life: Life, now: Lives) -> bool:
    return now.shown.get(life.column) is life


def _has_name(life: Life, name: str, at: Place) -> bool:
    return life.is_alive(at) and caseless(life.name(at)) == caseless(name)


def name_now(name: str, now: Lives) -> str | None:
    """Returns the name that a column of the table has now; None if the table doesn't show it any more."""
    had = now.named.get(caseless(name), ())
    shown = [life.column for life in had if _is_shown(life, now)]
    same = (column for column in shown if caseless(column) == caseless(name))
    return next(same, shown[-1] if shown else None) if had else name


def followed_columns(
    columns: Sequence[TableColumn], now: Lives, versions: Collection[Version], key: Key = ()
) -> tuple[TableColumn, ...]:
    """Returns a table's columns after what messages tell: renamed, and with those that no event has carried yet.

    `versions`: those of `now`. A column that events lack all the same is none that the connector sends; and none is
    added where types are inferred from values. `key`: the table's key, whose columns stay until it has another one."""
    adds = not any(column.inferred for column in columns)
    found: dict[str, TableColumn] = {}
    for column in columns:
        name = name_now(column.name, now)
        if name is not None:
            found.setdefault(caseless(name), _renamed(column, name))
        elif column.name in key:
            found.setdefault(caseless(column.name), column)
    for name, life in now.shown.items():
        if caseless(name) in found:
            continue
        had = {caseless(step.name) for step in life.names}
        source = next((column for column in columns if caseless(column.name) in had), None)
        type_, _ = stored_type(life.types)
        is_new = adds and life.begin is not None and life.end is None and _is_sent(life, versions)
        if source is not None:
            kept = found.get(caseless(source.name))
            if kept is not None:  # Its name is another column's now.
                found[caseless(source.name)] = replace(kept, hashed_name="")
            found[caseless(name)] = replace(_renamed(source, name), type=type_ or source.type)
        elif type_ is not None and is_new:
            found[caseless(name)] = TableColumn(name, type_)
    return _with_own_hashed_names(found.values())


def _renamed(column: TableColumn, name: str) -> TableColumn:
    """Returns a column under another name. In the hashes of tombstones it keeps the first one."""
    if column.name == name:
        return column
    first = column.hashed_name or column.name
    return replace(column, name=name, hashed_name="" if first == name else first)


def _with_own_hashed_names(columns: Iterable[TableColumn]) -> tuple[TableColumn, ...]:
    """Returns the columns. One that has got the name by which hashes know another one gets its own name there."""
    every = tuple(columns)
    taken = sorted({column.hashed_name for column in every} - {""})
    return tuple(
        replace(column, hashed_name=f"{column.name}#{len(taken)}")
        if column.name in taken and not column.hashed_name
        else column
        for column in every
    )


def _is_sent(life: Life, versions: Collection[Version]) -> bool:
    """Returns False if some event lacks the column at a position of its life."""
    shown = (v for v in versions if v.origin is Origin.SEEN and life.is_alive(v.since))
    return all(any(_has_name(life, c.name, v.since) for c in v.definition.columns) for v in shown)


def renamed_away(names: Collection[str], now: Lives) -> tuple[str, str] | None:
    """Returns the name before and the name now of a shown column that had one of `names` and now has none of them; None
    if there is none."""
    declared = {caseless(name) for name in names}
    for column, life in now.shown.items():
        former = [step.name for step in life.names if caseless(step.name) in declared]
        if former and caseless(column) not in declared:
            return former[-1], column
    return None


def unfollowed(table: str) -> str:
    """Returns a sentence about a table that goes by declared renames, though messages of its source tell them."""
    return (
        f"{table} goes by its events, since the pipeline's file declares its renames: what the messages of the source "
        f"tell of it has no effect → remove tables: {{{table}: {{renames: …}}}}, and fold it anew (ingest backfill "
        f"PIPELINE --rebuild --table {table})"
    )


def told_key(now: Lives) -> Key:
    """Returns the key in force that messages tell; () if none do, or if the table has none."""
    era = now.keys[-1] if now.keys else None
    return era.columns if era is not None and {*era.columns} <= now.shown.keys() else ()


def renamed_key(key: Iterable[str], now: Lives) -> Key | None:
    """Returns the names that the columns of a table's key have now; None if the table doesn't show one of them."""
    names = [name_now(name, now) for name in key]
    return None if None in names else tuple(name for name in names if name is not None)


def versions_by_name(told: Mapping[str, Collection[Version]]) -> dict[str, frozenset[Version]]:
    """Returns the told versions of each name, with renames: where a relation has left a name for another one, that name
    has a version without a table, and the first version of the relation under the new name has the former one.

    `told`: name of a table → versions that messages tell. By the relation (oid) alone: a table that is renamed, moved
    to another schema, or whose schema is renamed is the same relation."""
    found = {name: set(versions) for name, versions in told.items()}
    names: dict[int, str] = {}
    for version, name in sorted(_with_names(told), key=lambda one: (one[0].since, one[1])):
        relation = version.definition.relation
        if relation is None:
            continue
        former = names.pop(relation, name)
        if version.cause.tag != DROP_TABLE:
            names[relation] = name
        if former != name:
            cause = Cause(RENAME_TABLE, other_name=name)
            found[former].add(Version(version.since, Definition((), (), relation), Origin.TOLD, cause))
            found[name].discard(version)
            found[name].add(replace(version, cause=replace(version.cause, other_name=former)))
    return {name: frozenset(versions) for name, versions in found.items()}


def _with_names(told: Mapping[str, Collection[Version]]) -> list[tuple[Version, str]]:
    return [(version, name) for name, versions in told.items() for version in versions]
