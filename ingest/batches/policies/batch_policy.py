"""Applies the schema policy of a table to one batch: which columns are stored, and what becomes of each change."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from ingest.batches.group_stats import CHANGE, Group
from ingest.batches.limits import require_within
from ingest.batches.rules import Rules
from ingest.batches.seen_versions import Incoming
from ingest.batches.table_batch import TableBatch
from ingest.evolution.changes import AddColumn, AlterKey, AlterType, SchemaChange
from ingest.evolution.definition import NULL, Definition, Version
from ingest.evolution.followed import key_now
from ingest.evolution.life import Lives
from ingest.evolution.policies import AddedColumns, added_columns, evolve, exceeded_limit
from ingest.evolution.schema_policy import (
    Accepted,
    Decision,
    Outcome,
    changed_column,
    column_changes,
    decisions,
    outcome_of,
)
from ingest.evolution.seen_definitions import seen_definition
from ingest.lakehouse.catalog import CatalogEntry
from ingest.merge.table_schema import TableSchema
from ingest.names import caseless
from ingest.values.columns import Column


class BatchPolicy:
    """The schema policy of a table, as it applies to one batch.

    Attributes:
        taken: the groups of changes without the columns whose values are not stored.
        ignored: (change, number of events) of each column whose values are not stored.
    """

    def __init__(
        self,
        rules: Rules,
        batch: TableBatch,
        incoming: Incoming,
        entry: CatalogEntry | None,
        now: Lives,
        untaken: frozenset[str],
    ) -> None:
        """`incoming`: the groups of changes with all of their columns. `entry`: that of the table before them; None for
        a new one. `now`: the lives that messages tell. `untaken`: names, in `caseless` form, of columns that messages
        tell and the table has not taken."""
        self._rules = rules
        self._batch = batch
        self._incoming = incoming
        self._entry = entry
        self._now = now
        self._policy = rules.policy_of(batch.table)
        self._accepted = rules.accepted.get(batch.table, Accepted())
        self._stored = [*(entry.table_schema.names if entry else ()), *(c.name for c in self._accepted.columns)]
        takes_new = self._policy.takes(AddColumn.kind)
        self._untaken = frozenset() if takes_new else untaken - {*map(caseless, self._stored)}
        self._names = self._fixed_names()
        self.taken = [(group, self._within(group, columns)) for group, columns in incoming]
        self._left = tuple(self._not_stored())
        counts: dict[str, int] = {}
        for group, name in self._left:
            change = f"{AddColumn.kind} {name}"
            counts[change] = counts.get(change, 0) + group.count
        self.ignored = tuple(sorted(counts.items()))

    def _fixed_names(self) -> Collection[str] | None:
        """Returns the names, in `caseless` form, of the only columns that the table may have; None if it takes new
        ones. A new table gets the columns that messages tell, and those of its first event with a schema."""
        if not self._policy.ignores_new_columns:
            return None
        if self._stored:
            return {*map(caseless, self._stored)}
        with_schema = ((group.first_position, found) for group, found in self._incoming if group.schema_id is not None)
        first = min(with_schema, key=lambda one: one[0], default=None)
        spelling = self._rules.spelling(self._batch.table)
        names = [] if first is None else spelling.table_names((c.name for c in first[1]), ()).values()
        return {*map(caseless, (*names, *self._now.shown))} or None

    def _within(self, group: Group | None, columns: tuple[Column, ...]) -> tuple[Column, ...]:
        """Returns the columns whose values are stored. Those of events from before a rename have the former name.
        `group`: None for events at any position."""
        if self._names is None and not self._untaken:
            return columns
        is_older = group is None or group.first_position < max(self._now.places, default=())
        names = None if self._names is None else {*self._names, *(self._now.named if is_older else ())}
        found = self._rules.spelling(self._batch.table).table_names((c.name for c in columns), self._stored)
        forms = ((column, caseless(found[column.name])) for column in columns)
        return tuple(c for c, form in forms if form not in self._untaken and (names is None or form in names))

    def _not_stored(self) -> Iterator[tuple[Group, str]]:
        for (group, columns), (_, taken) in zip(self._incoming, self.taken, strict=True):
            if len(taken) < len(columns):
                names = {column.name for column in taken}
                yield from ((group, column.name) for column in columns if column.name not in names)

    def definition(self, table_schema: TableSchema, columns: Sequence[Column]) -> Definition | None:
        """Returns the definition of events with these columns, as the table keeps it: without those whose values are
        not stored, and partial if columns that it lacks go on. Returns None if the table can't have the columns, or has
        not got them yet: another reader's events that are not merged."""
        stored, spelling = self._within(None, tuple(columns)), self._rules.spelling(table_schema.table)
        if evolve(table_schema.columns, stored, spelling, retypes=True, key=table_schema.key).conflicts:
            return None
        names = spelling.table_names([c.name for c in stored], table_schema.names)
        had = {step.name for life in self._now.columns for step in life.names}
        if not {*names.values()} <= {*table_schema.names, *had}:
            return None
        found = seen_definition(stored, names)
        return replace(found, is_partial=True) if table_schema.key and self._policy.keeps_dropped else found

    def decided(self, new: CatalogEntry, shown: Collection[Version]) -> tuple[CatalogEntry, list[Decision]]:
        """Decides on the changes that lead from the table's entry to a new one, and on columns whose values are not
        stored. Returns the new entry, with the number of its new columns, and the decisions.

        `shown`: the versions that the batch is the first to show. Raises TableUnusable if a limit is exceeded."""
        policy, entry, accepted = self._policy, self._entry, self._accepted
        before, after = entry.table_schema.columns if entry else None, new.table_schema.columns
        if entry is not None:
            new = replace(new, added_columns=entry.added_columns, renames=entry.renames)
        if before != after:
            new = replace(new, added_columns=self._added_columns(new))
            require_within(exceeded_limit(before, after, new.added_columns, self._rules.limits))
        if policy.applies_all and not shown and before == after:
            return new, []
        known = (entry.versions if entry else new.told_versions) | accepted.versions
        key = (entry or new).table_schema.key
        found = [*decisions(known, shown, policy, key)] if shown else []
        at = min((group.first_position for group, _ in self._incoming), default=())
        shown_changes = {_identity(one.change) for one in found}
        others = (one for one in self._of_columns(new, bool(known)) if _identity(one) not in shown_changes)
        found += [Decision(at, one, outcome_of(one, policy, key)) for one in others]
        return new, [*found, *self._of_columns_left(), *self._of_keys(entry or new)]

    def _of_columns_left(self) -> Iterator[Decision]:
        """Yields a decision on each column whose values are not stored. It is refused if keys of events name the
        column, because rows that differ in it alone would become one."""
        first = {name: group for group, name in reversed(self._left)}
        carried = {name for group, _ in self._left for key in group.keys or () for name in key}
        in_keys = set() if self._rules.has_declared_key(self._batch.table) else carried
        for name in sorted(first):
            outcome = Outcome.REFUSED if name in in_keys else Outcome.IGNORED
            yield Decision(first[name].first_position, AddColumn(name, NULL), outcome)

    def _of_columns(self, new: CatalogEntry, has_versions: bool) -> list[SchemaChange]:
        """Returns the changes of the table's columns that were not decided before. `has_versions`: these show types."""
        if self._entry is None:
            return []
        names = {caseless(column.name) for column in self._accepted.columns}
        found = column_changes(self._entry.table_schema.columns, new.table_schema.columns)
        is_shown = (has_versions and isinstance(change, AlterType) for change in found)
        return [c for c, shown in zip(found, is_shown, strict=True) if not shown and _identity(c)[1] not in names]

    def _added_columns(self, new: CatalogEntry) -> AddedColumns:
        """Returns the numbers of columns that the table got per day, with those that are new. The day is that of the
        newest change at its source."""
        if self._entry is None:
            return ()
        newest = max((group.newest for group in self._batch.groups if group.newest is not None), default=None)
        day = "" if newest is None else datetime.fromtimestamp(newest / 1000, UTC).date().isoformat()
        return added_columns(self._entry.added_columns, day, len({*new.table_schema.names} - {*self._stored}))

    def _of_keys(self, entry: CatalogEntry) -> Iterator[Decision]:
        """Yields a refusal for each key that events carry, that is not the table's, and that the policy doesn't apply.
        A table without a key may get its first one.

        Without a schema a key that names fewer columns may leave out a null."""
        table, policy = self._batch.table, self._policy
        if policy.takes(AlterKey.kind) or self._rules.has_declared_key(table):
            return
        key, spelling = entry.table_schema.key, self._rules.spelling(table)
        known = [{*one} for one in (key, *entry.former_keys, *self._accepted.keys)]
        for group in self._batch.groups:
            for carried in group.keys or () if group.kind == CHANGE else ():
                then = tuple(spelling.table_names(carried, entry.table_schema.names).values())
                names = {*(key_now(then, self._now, group.first_position, group.last_position) or then)}
                is_whole = group.schema_id is not None or not names < {*key}
                if names and names not in known and is_whole:
                    change = AlterKey(key, tuple(sorted(names)))
                    yield Decision(group.first_position, change, outcome_of(change, policy, key))


def _identity(change: SchemaChange) -> tuple[str, str]:
    return change.kind, caseless(changed_column(change))
