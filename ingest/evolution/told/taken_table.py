"""The table that takes versions which messages tell, as far as they have been decided."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ingest.evolution.changes import SchemaChange
from ingest.evolution.definition import ColumnDefinition, Definition, Origin, Place, Version
from ingest.evolution.schema_policy import Decision, Outcome, SchemaPolicy, outcome_of
from ingest.names import caseless

_NOTHING = Definition((), is_partial=True)
"""A definition that changes nothing."""


@dataclass(frozen=True)
class FollowingTable:
    """A table that messages are about.

    Attributes:
        key: the names of its key columns; () if it has none.
        is_key_declared: the pipeline's file declares the key, so that messages don't change it.
        versions: those that are known of its definition, told ones as it has taken them.
        accepted: the positions of told versions whose changes were decided before, and are not refused any more.
    """

    key: tuple[str, ...] = ()
    is_key_declared: bool = False
    versions: frozenset[Version] = frozenset()
    accepted: frozenset[Place] = frozenset()


@dataclass
class TakenTable:
    """What the table has become by the versions that were decided on.

    Attributes:
        named: all columns that messages name, in `caseless` form.
        source: the definition that the last version told; None before the first one.
        columns: those of the table, by `caseless` name, with those that are kept after their drop.
        relation: the number of the relation that the table holds.
        numbers: those of all columns of the relation so far.
        last: the definition that the table has taken last.
        is_gone: the source has no table of the name.
        is_dropped: neither has the lakehouse.
        decisions: what becomes of each change, in order.
    """

    policy: SchemaPolicy
    table: FollowingTable
    named: Collection[str]
    source: Definition | None = None
    columns: dict[str, ColumnDefinition] = field(default_factory=dict)
    relation: int | None = None
    numbers: set[int | None] = field(default_factory=set)
    last: Definition = _NOTHING
    is_gone: bool = False
    is_dropped: bool = False
    decisions: list[Decision] = field(default_factory=list)

    def take(self, source: Definition, taken: Definition, kept: Mapping[str, ColumnDefinition]) -> None:
        """Records the definition that a version tells, and what the table takes of it. `kept`: columns besides."""
        if taken.relation != self.relation:
            self.numbers = set()
        self.source, self.last, self.relation = source, taken, taken.relation
        self.is_gone = self.is_dropped = False
        self.columns = {**kept, **{caseless(column.name): column for column in taken.columns}}
        self.numbers |= {column.number for column in self.columns.values()}

    def outcome(self, at: Place, change: SchemaChange, key: Sequence[str], is_needed: bool = False) -> Outcome:
        """Returns what becomes of a change, which is one of the decisions now. `is_needed`: rows would be wrong
        if it weren't applied."""
        found = outcome_of(change, self.policy, key)
        if is_needed and found is not Outcome.APPLIED:
            found = Outcome.REFUSED
        if found is Outcome.REFUSED and at in self.table.accepted:
            found = Outcome.APPLIED
        self.decisions.append(Decision(at, change, found))
        return found

    def refuse(self, at: Place, change: SchemaChange) -> None:
        """Refuses a change without which, or with which, rows would be wrong, unless it was accepted before."""
        if at not in self.table.accepted:
            self.decisions.append(Decision(at, change, Outcome.REFUSED))

    def shown(self, at: Place) -> Definition | None:
        """Returns the definition that events have shown below a position, of columns that messages name; None if they
        have shown none. It becomes that of the table."""
        found: dict[str, ColumnDefinition] = {}
        seen = (version for version in self.table.versions if version.origin is Origin.SEEN and version.since < at)
        for version in sorted(seen, key=lambda one: one.since):
            columns = {caseless(c.name): c for c in version.definition.columns if caseless(c.name) in self.named}
            found = found | columns if version.definition.is_partial else columns
        self.columns = found
        return Definition(tuple(found.values())) if found else None
