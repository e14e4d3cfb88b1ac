"""Applies the schema policies of a pipeline to batches: which columns are taken, and what becomes of each change."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from pyspark.sql import functions as F

from ingest.batches.group_stats import CHANGE, Group
from ingest.batches.limits import require_within
from ingest.batches.rules import Rules
from ingest.batches.seen_versions import Incoming
from ingest.batches.table_batch import TableBatch
from ingest.changelog.accounting import Account
from ingest.changelog.spelling import caseless
from ingest.errors import TableUnusable
from ingest.evolution.changes import AddColumn, AlterKey, AlterType, CreateTable, SchemaChange
from ingest.evolution.definition import NULL, Definition, Version
from ingest.evolution.policies import AddedColumns, added_columns, exceeded_limit
from ingest.evolution.schema_policy import (
    TRUNCATE_TABLE,
    Accepted,
    Decision,
    OnChange,
    Outcome,
    SchemaPolicy,
    changed_column,
    column_changes,
    decisions,
    outcome_of,
    summary,
)
from ingest.lakehouse.catalog import CatalogEntry
from ingest.lakehouse.schema_history import RecordedOutcome, SchemaOutcomes
from ingest.merge.table_schema import TableSchema
from ingest.values.columns import Column

SCHEMA_CHANGE = "schema-change"
"""The code of a table that is set aside because of a change that its policy refuses."""
_log = logging.getLogger(__name__)
_LEVELS = {Outcome.APPLIED: logging.INFO, Outcome.REFUSED: logging.ERROR}


class ChangePolicies:
    """The schema policies of a pipeline's tables."""

    def __init__(self, rules: Rules, outcomes: SchemaOutcomes) -> None:
        self._rules = rules
        self._outcomes = outcomes
        self._recorded: dict[str, set[tuple[str, str, Outcome]]] = {}

    def admitted(self, table: str, incoming: Incoming, known: TableSchema | None) -> Incoming:
        """Returns the groups without the columns whose values are not stored. `known`: the table's schema; None for a
        new one, which gets the columns of its first event with a schema."""
        names = self._fixed_names(table, incoming, known)
        return incoming if names is None else [(group, self._within(table, found, names)) for group, found in incoming]

    def _fixed_names(self, table: str, incoming: Incoming, known: TableSchema | None) -> Collection[str] | None:
        """Returns the names of the only columns that the table may have; None if it takes new ones."""
        if not self._rules.policy_of(table).ignores_new_columns:
            return None
        accepted = self._rules.accepted.get(table, Accepted())
        names = [c.name for c in (*(known.columns if known else ()), *accepted.columns)]
        if names:
            return names
        with_schema = [(group.first_position, columns) for group, columns in incoming if group.schema_id is not None]
        first = min(with_schema, key=lambda one: one[0], default=None)
        spelling = self._rules.spelling(table)
        return None if first is None else spelling.table_names((c.name for c in first[1]), ()).values()

    def _within(self, table: str, columns: Sequence[Column], names: Collection[str]) -> tuple[Column, ...]:
        known = {caseless(name) for name in names}
        found = self._rules.spelling(table).table_names((c.name for c in columns), names)
        return tuple(c for c in columns if caseless(found[c.name]) in known)

    def definition_columns(self, table: str, columns: Sequence[Column], names: Collection[str]) -> Sequence[Column]:
        """Returns the columns of a schema that belong to a definition. `names`: of the table's columns."""
        is_fixed = self._rules.policy_of(table).ignores_new_columns
        return self._within(table, columns, names) if is_fixed else columns

    def as_kept(self, table: str, definition: Definition, key: Sequence[str]) -> Definition:
        """Returns a definition as the table keeps it: partial, if columns that it lacks go on."""
        return (
            replace(definition, is_partial=True) if key and self._rules.policy_of(table).keeps_dropped else definition
        )

    def is_created(self, table: str, entry: CatalogEntry | None) -> bool:
        """Returns whether a table exists or may be created."""
        return entry is not None or table in self._rules.accepted or self._rules.policy_of(table).creates_tables

    def decided(
        self,
        batch: TableBatch,
        incoming: Incoming,
        entry: CatalogEntry | None,
        new: CatalogEntry,
        shown: Collection[Version],
    ) -> CatalogEntry:
        """Decides on the changes that lead from an entry of the catalog to a new one, and on columns that are not
        taken; logs and records what becomes of each. Returns the new entry, with the number of its new columns.

        `incoming`: the groups with all of their columns. `shown`: the new versions. Raises TableUnusable if a change is
        refused, or a limit exceeded."""
        policy, table = self._rules.policy_of(batch.table), batch.table
        before, after = entry.table_schema.columns if entry else None, new.table_schema.columns
        if entry is not None:
            new = replace(new, added_columns=entry.added_columns, renames=entry.renames)
        if before != after:
            new = replace(new, added_columns=self._added_columns(batch, entry, new))
            require_within(exceeded_limit(before, after, new.added_columns, self._rules.limits))
        if policy.applies_all and not shown and before == after:
            return new
        accepted = self._rules.accepted.get(table, Accepted())
        known, key = (entry.versions if entry else frozenset()) | accepted.versions, (entry or new).table_schema.key
        found = [*decisions(known, shown, policy, key)] if shown else []
        at = min((group.first_position for group, _ in incoming), default=())
        others = self._of_columns(entry, new, accepted, has_versions=bool(known))
        shown_changes = {_identity(one.change) for one in found}
        found += [
            Decision(at, one, outcome_of(one, policy, key)) for one in others if _identity(one) not in shown_changes
        ]
        found += self._not_taken(table, incoming, new.table_schema)
        found += self._of_keys(batch, entry or new, accepted)
        self._settle(table, found)
        return new

    def _of_columns(
        self, entry: CatalogEntry | None, new: CatalogEntry, accepted: Accepted, has_versions: bool
    ) -> list[SchemaChange]:
        """Returns the changes of a table's columns that were not decided before. `has_versions`: these show types."""
        if entry is None:
            return []
        names = {caseless(column.name) for column in accepted.columns}
        found = column_changes(entry.table_schema.columns, new.table_schema.columns)
        is_shown = (has_versions and isinstance(change, AlterType) for change in found)
        return [c for c, shown in zip(found, is_shown, strict=True) if not shown and _identity(c)[1] not in names]

    def _added_columns(self, batch: TableBatch, entry: CatalogEntry | None, new: CatalogEntry) -> AddedColumns:
        """Returns the numbers of columns that the table got per day, with those that are new. The day is that of the
        newest change at its source."""
        if entry is None:
            return ()
        accepted = self._rules.accepted.get(batch.table, Accepted())
        known = {column.name for column in (*entry.table_schema.columns, *accepted.columns)}
        newest = max((group.newest for group in batch.groups if group.newest is not None), default=None)
        day = "" if newest is None else datetime.fromtimestamp(newest / 1000, UTC).date().isoformat()
        return added_columns(entry.added_columns, day, len({*new.table_schema.names} - known))

    def _not_taken(self, table: str, incoming: Incoming, known: TableSchema) -> Iterator[Decision]:
        """Yields a decision for each column whose values are not stored."""
        seen = set[str]()
        for group, name in self._ignored_columns(table, incoming, known):
            if name not in seen:
                seen.add(name)
                yield Decision(group.first_position, AddColumn(name, NULL), Outcome.IGNORED)

    def _ignored_columns(self, table: str, incoming: Incoming, known: TableSchema) -> Iterator[tuple[Group, str]]:
        if not self._rules.policy_of(table).ignores_new_columns:
            return
        names = known.names
        for group, columns in incoming:
            taken = {c.name for c in self._within(table, columns, names)}
            yield from ((group, c.name) for c in columns if c.name not in taken)

    def ignored(self, table: str, incoming: Incoming, known: TableSchema | None) -> tuple[tuple[str, int], ...]:
        """Returns how many events have values of each column that is not stored, as (change, number of events)."""
        counts: dict[str, int] = {}
        for group, name in self._ignored_columns(table, incoming, known) if known else ():
            change = f"{AddColumn.kind} {name}"
            counts[change] = counts.get(change, 0) + group.count
        return tuple(sorted(counts.items()))

    def _of_keys(self, batch: TableBatch, entry: CatalogEntry, accepted: Accepted) -> Iterator[Decision]:
        """Yields a refusal for each key that events carry, that is not the table's, and that the policy doesn't apply.

        Without a schema a key that names fewer columns may leave out a null."""
        table, policy = batch.table, self._rules.policy_of(batch.table)
        is_applied = policy.mode(AlterKey.kind) in (OnChange.EVOLVE, OnChange.LENIENT)
        is_declared = table in self._rules.primary_keys or table in self._rules.append_only
        if is_applied or is_declared or not entry.table_schema.key:
            return
        key, spelling = entry.table_schema.key, self._rules.spelling(table)
        known = [{*one} for one in (key, *entry.former_keys, *accepted.keys)]
        for group in batch.groups:
            for carried in group.keys or () if group.kind == CHANGE else ():
                names = {*spelling.table_names(carried, entry.table_schema.names).values()}
                is_whole = group.schema_id is not None or not names < {*key}
                if names and names not in known and is_whole:
                    change = AlterKey(key, tuple(sorted(names)))
                    yield Decision(group.first_position, change, outcome_of(change, policy, key))

    def without_truncates(self, batch: TableBatch) -> tuple[TableBatch, Account]:
        """Returns the batch without truncates if these have no effect, and their account. Raises TableUnusable if they
        are refused."""
        found = [group for group in batch.groups if group.kind == "t"]
        outcome = self._rules.policy_of(batch.table).on_truncate
        if not found or outcome is Outcome.APPLIED:
            return batch, Account(batch.table)
        at = min(group.first_position for group in found)
        self._note(batch.table, [RecordedOutcome(at, TRUNCATE_TABLE, "", outcome, TRUNCATE_TABLE)])
        if outcome is Outcome.REFUSED:
            raise _refusal(batch.table, self._rules.policy_of(batch.table), TRUNCATE_TABLE, [TRUNCATE_TABLE])
        groups = [group for group in batch.groups if group.kind != "t"]
        kept = batch.events.where((F.col("op") != "t") | (F.col("source_table") != batch.table))
        count = sum(group.count for group in found)
        account = Account(batch.table, count, suppressed=count, ignored=((TRUNCATE_TABLE, count),))
        return replace(batch, groups=groups, events=kept), account

    def not_created(self, batch: TableBatch) -> Account:
        """Records that a table is not created. Returns the account of its events."""
        at = min((group.first_position for group in batch.groups), default=())
        self._note(batch.table, [RecordedOutcome(at, CreateTable.kind, "", Outcome.IGNORED, CreateTable.kind)])
        return Account(batch.table, batch.count, suppressed=batch.count, ignored=((CreateTable.kind, batch.count),))

    def _settle(self, table: str, found: Iterable[Decision]) -> None:
        found = list(found)
        self._note(table, [_recorded(one) for one in found])
        refused = [one.change for one in found if one.outcome is Outcome.REFUSED]
        if refused:
            texts = [summary(change) for change in refused]
            raise _refusal(table, self._rules.policy_of(table), refused[0].kind, texts)

    def _note(self, table: str, found: Sequence[RecordedOutcome]) -> None:
        """Logs outcomes, and records those that are not `APPLIED`, each once."""
        new = []
        for one in found:
            if one.outcome is not Outcome.APPLIED:
                if table not in self._recorded:
                    self._recorded[table] = {(r.kind, r.column, r.outcome) for r in self._outcomes.of_table(table)}
                if (one.kind, one.column, one.outcome) in self._recorded[table]:
                    continue
                self._recorded[table].add((one.kind, one.column, one.outcome))
                new.append(one)
            _log.log(_LEVELS.get(one.outcome, logging.WARNING), "%s: %s: %s", table, one.text, one.outcome)
        if new:
            self._outcomes.add(table, new)


def _recorded(decision: Decision) -> RecordedOutcome:
    change = decision.change
    return RecordedOutcome(decision.at, change.kind, changed_column(change), decision.outcome, summary(change))


def _refusal(table: str, policy: SchemaPolicy, kind: str, texts: Sequence[str]) -> TableUnusable:
    return TableUnusable(
        SCHEMA_CHANGE,
        f"its schema policy (on_change: {policy.mode(kind)}) refuses a change of the source: {'; '.join(texts)}",
        f"allow it: tables: {{{table}: {{schema: {{on_change: evolve}}}}}}",
    )


def _identity(change: SchemaChange) -> tuple[str, str]:
    return change.kind, caseless(changed_column(change))
