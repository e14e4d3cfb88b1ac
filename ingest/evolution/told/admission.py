"""Decides by a schema policy what a table takes of the versions that messages tell."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from ingest.evolution.changes import DropTable, Matching, arrival, departure, is_other_relation, matched
from ingest.evolution.definition import Definition, Origin, Version
from ingest.evolution.schema_policy import Decision, Outcome, SchemaPolicy
from ingest.evolution.told.alteration import Alteration
from ingest.evolution.told.taken_table import FollowingTable, TakenTable
from ingest.names import caseless


@dataclass(frozen=True)
class Admission:
    """What a table takes of the versions that messages tell.

    Attributes:
        versions: a version for each told one, at its position: the table as its policy leaves it.
        decisions: what becomes of each change that was not decided before, by position.
        untaken: names, in `caseless` form, of columns that the table doesn't take.
    """

    versions: frozenset[Version] = frozenset()
    decisions: tuple[Decision, ...] = ()
    untaken: frozenset[str] = frozenset()


def admitted(told: Collection[Version], policy: SchemaPolicy, table: FollowingTable) -> Admission:
    """Returns what a table takes of told versions, which have the names that its columns have. Ends with the first
    version that has a refused change.

    A version that the table has taken before stays as it is, whatever the policy is now. The lowest version of all is
    the table as it was created, and no change. A rename that is not followed is a drop and a new column, each by its
    own kind."""
    taken = {version.since: version for version in table.versions if version.origin is Origin.TOLD}
    if policy.applies_all and {*taken.values()} <= {*told}:
        return Admission(frozenset(told))
    named = _named(told)
    fold = TakenTable(policy, table, named)
    found: set[Version] = set()
    for version in sorted(told, key=lambda one: (one.since, repr(one))):
        if version.cause.is_unreadable:
            found.add(version)
        elif version.since in taken:
            found.add(_repeated(fold, version, taken[version.since]))
        else:
            decided = _decided(fold, version)
            if any(one.outcome is Outcome.REFUSED for one in fold.decisions):
                break
            found.add(decided)
    return Admission(frozenset(found), tuple(fold.decisions), frozenset(named - _named(found)))


def _named(versions: Iterable[Version]) -> set[str]:
    return {caseless(column.name) for version in versions for column in version.definition.columns}


def _repeated(table: TakenTable, version: Version, taken: Version) -> Version:
    """Goes on from a version that was decided before, and returns it. `taken`: as the table has taken it."""
    if version.cause.drops_table:
        table.is_gone, table.is_dropped = True, taken.cause.drops_table
    else:
        renamed = {column.number for column in taken.definition.columns} - {None}
        kept = {name: one for name, one in table.columns.items() if one.number not in renamed}
        table.take(version.definition, taken.definition, kept if taken.definition.is_partial else {})
    if taken.definition != version.definition:
        return taken
    # A message that came later may tell the other name of a renamed table.
    return replace(taken, cause=replace(taken.cause, other_name=version.cause.other_name))


def _decided(table: TakenTable, version: Version) -> Version:
    """Returns the version that the table takes."""
    before = table.source or table.shown(version.since)
    if version.cause.drops_table:
        return _without_table(table, version, before)
    if before is None:
        table.take(version.definition, version.definition, {})
        return version
    if table.is_gone or is_other_relation(before, version.definition):
        return _of_other_relation(table, version, before)
    return Alteration(table, version, before, matched(before, version.definition)).taken()


def _without_table(table: TakenTable, version: Version, before: Definition | None) -> Version:
    if not table.is_gone:
        is_applied = True
        if before is not None:
            change = departure(before, version.cause)
            is_applied = table.outcome(version.since, change, table.table.key) is Outcome.APPLIED
        table.is_gone, table.is_dropped = True, is_applied
    return version if table.is_dropped else Version(version.since, table.last, Origin.TOLD)


def _of_other_relation(table: TakenTable, version: Version, before: Definition) -> Version:
    """Returns the version of another relation under the name. If the table keeps the rows of the former one, its
    columns go on by their names."""
    at, key = version.since, table.table.key
    if not table.is_gone:
        table.is_dropped = table.outcome(at, DropTable(before.relation), key) is Outcome.APPLIED
    # Without it the rows would be those of two tables.
    table.outcome(at, arrival(version.definition, version.cause), key, is_needed=table.is_dropped)
    if table.is_dropped:
        table.take(version.definition, version.definition, {})
        return version
    cause = replace(version.cause, using=False, numbers=(), other_name="")
    matching = _by_name(before, version.definition)
    return Alteration(table, replace(version, cause=cause), before, matching).taken()


def _by_name(before: Definition, after: Definition) -> Matching:
    """Returns the columns of two relations that have one name."""
    old, new = ({column.name: column for column in one.columns} for one in (before, after))
    plain = [replace(one, columns=tuple(replace(c, number=None) for c in one.columns)) for one in (before, after)]
    found = matched(plain[0], plain[1])
    pairs = tuple((old[one.name], new[other.name]) for one, other in found.same)
    return Matching(pairs, tuple(old[c.name] for c in found.gone), tuple(new[c.name] for c in found.new))
