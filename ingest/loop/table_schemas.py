"""The key and columns of each table of a pipeline: from the catalog, and as changes extend them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from threading import Lock
from weakref import WeakKeyDictionary

from pyspark.sql import DataFrame, SparkSession

from ingest.batches.group_stats import Group
from ingest.batches.key_names import first_keys
from ingest.batches.limits import require_distinct_columns
from ingest.batches.policies.batch_policy import BatchPolicy
from ingest.batches.policies.change_policies import ChangePolicies
from ingest.batches.rules import Rules
from ingest.batches.schemas import Schemas
from ingest.batches.seen_versions import Incoming, SeenVersions
from ingest.batches.table_batch import TableBatch
from ingest.batches.table_owner import OwnedBatch, owned_batch
from ingest.changelog.envelope import RESYNCED
from ingest.evolution.column_types import unreadable, with_newest_types
from ingest.evolution.declared_types import as_declared, differences
from ingest.evolution.followed import followed_columns
from ingest.evolution.inferred.inference import columns_for_table, stored_column
from ingest.evolution.keys import Key
from ingest.evolution.life import Lives
from ingest.evolution.lives import lives
from ingest.evolution.policies import (
    ColumnConflict,
    IncompatibleType,
    TableColumn,
    evolve,
    with_hashed_types,
)
from ingest.lakehouse.catalog import CatalogEntry
from ingest.lakehouse.schema_history import SchemaHistory, SchemaOutcomes
from ingest.loop.told_tables import ToldTables, columns_of_group, new_as_told
from ingest.merge.table_schema import TableSchema
from ingest.names import Lakehouse
from ingest.reconcile import TableState
from ingest.reconcile.table_keys import TableKeys
from ingest.reconcile.table_revisions import TableRevisions
from ingest.suppression.personal_names import gone_columns
from ingest.values.columns import Column

_log = logging.getLogger(__name__)
Refused = dict[Group, tuple[ColumnConflict, ...]]
"""Groups of changes that don't fit into their table, and why."""


class TableSchemas:
    """The tables of one pipeline."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: str,
        lakehouse: Lakehouse,
        rules: Rules,
        known_messages: SchemaHistory | None = None,
    ) -> None:
        """`known_messages`: messages about definitions that are known besides those that the slices bring."""
        self._pipeline = pipeline
        self._rules = rules
        self.revisions = TableRevisions(spark, pipeline, lakehouse)
        self._wire: dict[str, tuple[Column, ...]] = {}
        self._keys: dict[str, tuple[int, tuple[str, ...] | None]] = {}
        self._first_keys = WeakKeyDictionary[DataFrame, dict[str, Key | None]]()
        self._first_keys_lock = Lock()
        self._seen = SeenVersions(rules)
        self.policies = ChangePolicies(rules, SchemaOutcomes(spark, lakehouse.schema_outcomes, pipeline))
        self.table_keys = TableKeys(rules, self.revisions, self.policies)
        self._compared = set[str]()
        self._to_fold_anew: dict[str, str] = {}
        history = SchemaHistory(spark, lakehouse.schemas, pipeline)
        self.told_tables = ToldTables(history, rules, self.revisions, self.policies, known_messages)

    @property
    def entries(self) -> list[CatalogEntry]:
        """Returns the catalog's entries, by name of the table."""
        return sorted(self.revisions.all(), key=lambda e: e.table_schema.table)

    def topic_tables(self) -> dict[str, str]:
        """Returns topic → table for topics that hold one table only."""
        tables: dict[str, set[str]] = {}
        for entry in self.revisions.all():
            for topic in entry.topics:
                tables.setdefault(topic, set()).add(entry.table_schema.table)
        return {topic: next(iter(names)) for topic, names in tables.items() if len(names) == 1}

    def arrived(self, table: str) -> tuple[Column, ...]:
        """Returns the columns with which the table's last changes came; empty where none has come yet."""
        return self._wire.get(table, ())

    def owned_batch(self, batch: TableBatch) -> OwnedBatch:
        """Splits a batch by the server and database of the table."""
        entry = self.revisions.get(batch.table)
        known = (entry.origin if entry else "") or self._rules.origins.get(batch.table)
        return owned_batch(batch, known, self._rules.renamed, entry.topics if entry else ())

    def record_owner(self, table: str, origin: str, stored: TableState) -> None:
        """Records the server and database of a table whose entry lacks them."""
        entry = self.revisions.get(table)
        if entry is not None and entry.origin != origin:
            self.revisions.record(entry, replace(entry, origin=origin), stored)

    def fold_anew(self, table: str, reason: str, stored: TableState) -> None:
        """Lets a run fold a table from its events again; one that is new, once it is there."""
        entry = self.revisions.get(table)
        _log.warning("%s: %s: ingest run folds it anew from its events", table, reason)
        if entry is None:
            self._to_fold_anew[table] = reason
        elif not entry.refold:
            self.revisions.record(entry, replace(entry, refold=reason), stored)

    def is_keyless(self, batch: TableBatch) -> bool:
        """Returns whether the table is known to have no key: then each create is a row of its own."""
        return self.key(batch) == ()

    def may_be_keyless(self, table: str) -> bool:
        """Returns whether the table has no key, or none that is known before its changes are read."""
        entry = self.revisions.get(table)
        return not (self._rules.primary_keys.get(table) if entry is None else entry.table_schema.key)

    def key(self, batch: TableBatch) -> tuple[str, ...] | None:
        """Returns the table's key; None where no record of the batch tells it."""
        entry = self.revisions.get(batch.table)
        if entry is not None:
            return entry.table_schema.key
        through_batch, known = self._keys.get(batch.table, (None, None))
        if through_batch != batch.through_batch:
            # Once per slice, before suppression removes records that may be the only ones that tell.
            known = self._key(batch)
            self._keys[batch.table] = (batch.through_batch, known)
        return known

    def names(self, table: str) -> set[str]:
        """Returns the names of the table's columns; empty where it is new."""
        return {column.name for column in self.table_columns(table)}

    def table_columns(self, table: str) -> tuple[TableColumn, ...]:
        """Returns the table's columns; none where it is new."""
        entry = self.revisions.get(table)
        return entry.table_schema.columns if entry else ()

    def lives(self, table: str) -> Lives:
        """Returns the lives of the table's columns; none where the table is new, or its events have no schema."""
        entry = self.revisions.get(table)
        return entry.lives if entry else Lives()

    def columns(self, table: str) -> tuple[Column, ...]:
        """Returns the columns by which an event without any is read; empty where the table is new."""
        known = self.table_columns(table)
        spelling = self._rules.spelling(table)
        return columns_for_table(self.arrived(table), known, spelling=spelling) or tuple(map(stored_column, known))

    def as_declared(self, table: str, sent: tuple[Column, ...]) -> tuple[Column, ...]:
        """Returns columns of events, those with a declared type in the one that the table has."""
        return self._as_declared(table, sent, self.table_columns(table))

    def _as_declared(self, table: str, sent: tuple[Column, ...], columns: Sequence[TableColumn]) -> tuple[Column, ...]:
        declared = self._rules.declared.get(table, {})
        if not declared and not any(column.declared for column in columns):
            return sent
        names = self._rules.spelling(table).table_names([c.name for c in sent], [c.name for c in columns])
        return as_declared(sent, columns, declared, names, self.lives(table))

    def evolve(
        self, batch: TableBatch, incoming: Incoming, stored: TableState, schemas: Schemas, origin: str = ""
    ) -> tuple[TableSchema | None, Refused, BatchPolicy]:
        """Returns the table's schema after these groups, written to the catalog and the stored tables, or None where it
        has no key or columns yet; the groups that it refuses; and its policy, which says what of the groups is stored.
        `origin`: the table's server and database."""
        self.told_tables.follow(batch.table, stored, origin)
        entry = self.revisions.get(batch.table)
        admission = self.told_tables.admission(batch.table, origin)
        told = entry.told_versions if entry else admission.versions
        self._log_other_types(batch.table, self.table_columns(batch.table))
        spelling, key = self._rules.spelling(batch.table), self.key(batch)
        now = entry.lives if entry and told else lives(told)
        policy = BatchPolicy(self._rules, batch, incoming, entry, now, admission.untaken)
        columns, refused, retyped = self._extended(batch.table, policy.taken, key or (), now if told else None)
        if entry is None:
            columns, key = new_as_told(batch.table, columns, key, told, self._rules)
        if key is not None:
            key = tuple(spelling.table_names(key, (c.name for c in columns)).values())
        if key is None or not columns or not set(key) <= {c.name for c in columns}:
            return None, refused, policy
        table_schema = TableSchema(batch.table, key, columns)
        self._rules.shredded.require_readable_owner(table_schema)
        seen = {t for g in batch.groups if g.kind != RESYNCED for t in g.topics}
        topics = tuple(sorted(seen | set(entry.topics if entry else ())))
        readable = [(group, sent) for group, sent in incoming if group not in refused]
        shown = self._seen.new(batch, readable, entry, schemas, partial(policy.definition, table_schema), told)
        known = entry.versions if entry else told
        versions = known | shown if shown else known
        new = CatalogEntry(self._pipeline, stored.silver.path, table_schema, 0, topics, origin, versions)
        new = replace(new, refold=self._to_fold_anew.get(batch.table, ""))
        if entry is not None:
            former, since = entry.former_keys, entry.keyless_since
            new = replace(new, former_keys=former, keyless_since=since, refold=entry.refold)
        if shown or entry is None or columns != entry.table_schema.columns:
            columns = followed_columns(columns, new.lives, versions, key) if told else columns
            new = replace(new, table_schema=replace(table_schema, columns=with_newest_types(columns, new.lives)))
        if entry is not None:
            keys = {*key, *chain.from_iterable(entry.former_keys)}
            hashed = with_hashed_types(entry.table_schema.columns, new.table_schema.columns, keys)
            new = replace(new, table_schema=replace(new.table_schema, columns=hashed))
        for group, types in retyped.items():
            if unknown := unreadable(types, new.lives, group.first_position, group.last_position):
                refused[group] = unknown
        new, decisions = policy.decided(new, shown)
        self.policies.settle(batch.table, decisions)
        if entry is None or new != replace(entry, revision=0, path=new.path, is_intent=True):
            before, entry = entry, self.revisions.record(entry, new, stored)
            self._log_gone_columns(batch.table, Lives() if before is None else before.lives, entry.lives)
        return entry.table_schema, refused, policy

    def _extended(
        self, table: str, taken: Incoming, key: Key, told: Lives | None
    ) -> tuple[tuple[TableColumn, ...], Refused, dict[Group, tuple[IncompatibleType, ...]]]:
        """Returns the table's columns after groups of changes; the groups that don't fit; and columns of groups whose
        types the lives of the table decide. `told`: the lives that messages tell; None if there are no messages."""
        columns, spelling = self.table_columns(table), self._rules.spelling(table)
        refused: Refused = {}
        retyped: dict[Group, tuple[IncompatibleType, ...]] = {}
        for group, carried in taken:
            sent = carried if told is None else columns_of_group(group, carried, columns, told, spelling)
            names = spelling.table_names(key, (c.name for c in columns)).values()
            arrived = self._as_declared(table, sent, columns)
            outcome = evolve(columns, arrived, spelling, group.schema_id is not None, names)
            columns = outcome.columns
            require_distinct_columns(outcome.conflicts)
            if outcome.conflicts:
                refused[group] = outcome.conflicts
                continue
            self._wire[table] = arrived or self._wire.get(table, ())
            if outcome.retyped:
                retyped[group] = outcome.retyped
        return columns, refused, retyped

    def _log_gone_columns(self, table: str, before: Lives, now: Lives) -> None:
        """Logs columns that settings of personal data name and that newer events lack."""
        settings = self._rules.personal_columns(table)
        for setting, column in sorted({*gone_columns(settings, now)} - {*gone_columns(settings, before)}):
            _log.warning(
                "%s: no row gets a value in column %r any more, which %s names: if it has another name now, name that "
                "too under tables: {%s: {%s: …}}",
                *(table, column, setting, table, setting),
            )

    def _log_other_types(self, table: str, columns: Sequence[TableColumn]) -> None:
        """Logs, once for each table, the columns that have another type than the pipeline's file declares."""
        declared = self._rules.declared.get(table, {})
        if not declared or not columns or table in self._compared:
            return
        self._compared.add(table)
        names = self._rules.spelling(table).table_names([*declared], [c.name for c in columns])
        for found in differences(columns, {names[name]: text for name, text in declared.items()}):
            _log.warning(
                "%s: column %r is %s in the table and declared as %s: it keeps its type until the table is rebuilt "
                "(ingest backfill %s --rebuild --table %s)",
                *(table, found.column, found.in_table, found.in_event, self._pipeline, table),
            )

    def _entry(self, table: str) -> CatalogEntry:
        """Returns the entry of a table that has one."""
        entry = self.revisions.get(table)
        assert entry is not None, f"table {table} has no entry in the catalog"
        return entry

    def _key(self, batch: TableBatch) -> tuple[str, ...] | None:
        """Returns the declared key, or the one that the records' keys name; empty where records have none; None where
        they are unreadable."""
        if batch.table in self._rules.append_only:
            return ()
        declared = self._rules.primary_keys.get(batch.table)
        if declared is not None:
            return declared
        with self._first_keys_lock:
            # One job for all new tables of a slice: each batch has the same events.
            found = self._first_keys.get(batch.events)
            if found is None:
                found = self._first_keys[batch.events] = first_keys(batch.events)
        return found.get(batch.table, ())
