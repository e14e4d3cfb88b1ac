"""Follows relations from name to name: what becomes of the table of a name if its relation gets another one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from ingest.evolution.definition import DROP_TABLE, RENAME_TABLE, Cause, Definition, Origin, Version


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
