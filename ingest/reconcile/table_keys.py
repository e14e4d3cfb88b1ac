"""The keys of the tables of one pipeline: the one in force of each, and others that its events carry."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ingest.batches.decoding import BatchChanges
from ingest.batches.group_stats import CHANGE, Group
from ingest.batches.key_split import have_schema, last_position, part_keys, tombstone_keys
from ingest.batches.policies.change_policies import ChangePolicies
from ingest.batches.rules import Rules
from ingest.batches.seen_versions import Incoming
from ingest.batches.table_batch import TableBatch
from ingest.changelog.spelling import Spelling
from ingest.evolution.changes import AlterKey
from ingest.evolution.definition import Place
from ingest.evolution.followed import key_now, told_key
from ingest.evolution.keys import Key, newest_key, other_keys
from ingest.evolution.life import Lives
from ingest.evolution.schema_policy import Accepted, Decision, outcome_of
from ingest.lakehouse.catalog import CatalogEntry
from ingest.lakehouse.rekeying import newest_position
from ingest.merge.table_schema import TableSchema
from ingest.reconcile import Changeset, FormerKeys, TableState, Truncation, reconcile
from ingest.reconcile.former_texts import without_deleted_texts
from ingest.reconcile.lost_keys import keys_before, loss_of_key, require_counted, without_key
from ingest.reconcile.several_keys import SeveralKeys, reconcile_several_keys, require_rekeyable
from ingest.reconcile.table_revisions import TableRevisions
from ingest.values.columns import Column

_log = logging.getLogger(__name__)
ReadBy = tuple[Sequence[tuple[Group, tuple[Column, ...]]], Rules, tuple[Column, ...], Lives]


class TableKeys:
    """The keys of the tables of one pipeline, which the catalog holds."""

    def __init__(self, rules: Rules, revisions: TableRevisions, policies: ChangePolicies) -> None:
        self._rules = rules
        self._revisions = revisions
        self._policies = policies

    def other_keys(self, batch: TableBatch) -> dict[Key, Key]:
        """Returns the keys that changes carry and that are not the one in force: names in the events → columns of the
        table. Empty where the key is declared."""
        entry, found = self._revisions.get(batch.table), dict[Key, Key]()
        if entry is None or batch.table in self._rules.primary_keys or batch.table in self._rules.append_only:
            return found
        in_force, names, spelling = entry.table_schema.key, entry.table_schema.names, self._rules.spelling(batch.table)
        self._revisions.log_part_keys(batch.table, in_force, part_keys(batch, in_force))
        carried = [(g.keys, g.schema_id is not None) for g in batch.groups if g.kind == CHANGE]
        told = _told_keys(batch, entry, spelling) if entry.told_versions else {}
        if entry.former_keys:
            carried.append((tombstone_keys(batch), True))
        for keys, is_whole in carried:
            if keys and keys != (in_force,):
                known = (*entry.former_keys, *found.values())
                found |= other_keys(keys, in_force, known, names, spelling, is_whole, told)
        # A key without a schema may leave out a column that is null.
        parts = [names for names, key in found.items() if set(key) < set(in_force) and not have_schema(batch, names)]
        return {names: key for names, key in found.items() if names not in parts}

    def key_again_since(self, batch: TableBatch) -> Place | None:
        """Returns the position from which the key in force is told to be in force again, if events of the batch lie
        below it: events of another key stand between these and the rows."""
        entry = self._revisions.get(batch.table)
        if entry is None or not entry.former_keys or not told_key(entry.lives):
            return None
        *earlier, era = entry.lives.keys
        if era.columns not in {one.columns for one in earlier}:
            return None
        since = era.begin
        first = min((group.first_position for group in batch.groups if group.kind == CHANGE), default=None)
        return since if since is not None and first is not None and first < since else None

    def loss_of_key(self, batch: TableBatch, incoming: Incoming, stored: TableState) -> Place | None:
        """Returns `lost_keys.loss_of_key`; None where the table is new. `incoming`: the batch's columns. Raises
        TableUnusable if the table's policy refuses that it loses its key."""
        entry = self._revisions.get(batch.table)
        sent = {column.name for _, columns in incoming for column in columns}
        since = None if entry is None else loss_of_key(batch, sent, entry, self._rules, stored)
        accepted = self._rules.accepted.get(batch.table, Accepted()).keys
        if entry is not None and since is not None and () not in accepted:
            key, policy = entry.table_schema.key, self._rules.policy_of(batch.table)
            change = AlterKey(key, ())
            self._policies.settle(batch.table, [Decision(since, change, outcome_of(change, policy, key))])
        return since

    def lose_key(self, table: str, since: Place, stored: TableState) -> None:
        """Records that a table has no key any more, and brings the stored tables to that."""
        entry = self._entry(table)
        require_rekeyable(table, stored, {(): ()})
        self._revisions.record(entry, without_key(entry, since), stored)

    def stays_keyless(self, batch: TableBatch, own: TableBatch, last: Mapping[Key, Place], stored: TableState) -> bool:
        """Returns whether a table without a key goes on without one, though events of the batch carry some, which are
        recorded then. `own`: the events without a key. `last`: key → highest position of an event."""
        entry = self._entry(batch.table)
        keys, since = keys_before(entry)
        newest, at = max((at, key) for key, at in last.items())[::-1]
        known = max(newest_position(stored), since, last_position(own))
        if entry.table_schema.key or at > known:
            return False
        require_counted(batch, entry, newest, at)
        former = tuple(sorted({*entry.former_keys, *keys, *last}))
        new = replace(entry, former_keys=former, keyless_since=since if at < since else known)
        if new != entry:
            self._revisions.record(entry, new, stored)
        return True

    def former_keys(
        self, table_schema: TableSchema, shares: Mapping[Key, TableBatch], read_by: ReadBy
    ) -> FormerKeys | None:
        """Returns the keys that events of a table without one may carry; None if it never had one. `shares`: key → the
        events of the batch that carry it. `read_by`: further arguments of `BatchChanges`."""
        keys, since = keys_before(self._entry(table_schema.table))
        schemas = {key: replace(table_schema, key=key) for key in shares if key}
        changes = {key: BatchChanges(shares[key], schema, *read_by) for key, schema in schemas.items()}
        return FormerKeys(keys, since, changes) if keys else None

    def keys(self, table: str, carried: Key) -> SeveralKeys:
        """Returns the keys of a table. `carried`: that of the events at hand."""
        entry = self._entry(table)
        return SeveralKeys(entry.table_schema, carried, entry.former_keys, entry.required_key)

    def add_keys(self, table: str, last: Mapping[Key, Place], stored: TableState) -> tuple[Key, ...]:
        """Records keys that events have carried, of which the one of the newest event is in force from here on, and
        brings the stored tables to it. Returns the others. `last`: key → highest position of an event."""
        entry = self._entry(table)
        table_schema = entry.table_schema
        newest = table_schema.key
        if not newest or not told_key(entry.lives):
            newest = newest_key(table_schema.key, newest_position(stored), last)
        if newest in entry.former_keys:
            _log.warning(
                "%s has the key (%s) again: an event of its first time that comes late may bring back a row that an "
                "event of another key has deleted; to be sure, run: ingest backfill PIPELINE --rebuild --table %s",
                *(table, ", ".join(newest), table),
            )
        former = tuple(sorted({*entry.former_keys, *last, table_schema.key} - {newest, ()}))
        new = replace(entry, table_schema=replace(table_schema, key=newest), former_keys=former)
        if new != entry:
            self._revisions.record(entry, new, stored)
        return former

    def reconciled(
        self,
        batch: TableBatch,
        changes: BatchChanges,
        table_schema: TableSchema,
        stored: TableState,
        truncation: Truncation,
        carried: Key | None,
        former: FormerKeys | None,
    ) -> Changeset:
        """Returns what the changes of a batch do to their table. `carried`: the key of all events, if it is not the one
        in force. `former`: as of `reconcile`."""
        if table_schema.key:
            changes = without_deleted_texts(changes, stored.tombstones)
        if carried is not None:
            return reconcile_several_keys(changes, self.keys(table_schema.table, carried), stored, truncation)
        return reconcile(changes, table_schema, stored, truncation, batch.count, batch.key_changes, former)

    def _entry(self, table: str) -> CatalogEntry:
        entry = self._revisions.get(table)
        assert entry is not None, f"table {table} has no entry in the catalog"
        return entry


def _told_keys(batch: TableBatch, entry: CatalogEntry, spelling: Spelling) -> dict[Key, Key]:
    """Returns the keys of changes whose columns have other names now: names in the events → columns of the table."""
    found: dict[Key, Key] = {}
    for group in batch.groups:
        for names in (group.keys or ()) if group.kind == CHANGE else ():
            then = tuple(spelling.table_names(names, entry.table_schema.names).values())
            is_newest = group.first_position >= max(entry.lives.places, default=())
            key = None if is_newest else key_now(then, entry.lives, group.first_position, group.last_position)
            if key is not None and key != then:
                found[names] = key
    return found
