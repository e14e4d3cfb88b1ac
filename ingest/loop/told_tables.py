"""Knows what the captured messages tell of the definitions of a pipeline's tables."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame

from ingest.batches.group_stats import Group
from ingest.batches.limits import require_within
from ingest.batches.policies.change_policies import ChangePolicies
from ingest.batches.rules import Rules
from ingest.changelog.ddl_message import DDL_MESSAGE
from ingest.changelog.origin import UNNAMED, former_origin, origins_differ
from ingest.changelog.spelling import Spelling
from ingest.evolution.column_types import with_newest_types
from ingest.evolution.definition import Place, Version, unreadable_version
from ingest.evolution.followed import (
    columns_now,
    followed_columns,
    in_table_names,
    keeps_name,
    renamed_key,
    told_key,
    unfollowed,
    versions_by_name,
)
from ingest.evolution.keys import Key
from ingest.evolution.life import Lives
from ingest.evolution.lives import lives
from ingest.evolution.policies import TableColumn, exceeded_limit
from ingest.evolution.schema_policy import Accepted
from ingest.evolution.seen_definitions import untyped_version
from ingest.evolution.told.admission import Admission, admitted
from ingest.evolution.told.taken_table import FollowingTable
from ingest.lakehouse.catalog import CatalogEntry
from ingest.lakehouse.rekeying import newest_position
from ingest.lakehouse.schema_history import SchemaHistory, ToldVersion
from ingest.merge.table_schema import TableSchema
from ingest.reconcile import TableState
from ingest.reconcile.lost_keys import told_loss, without_key
from ingest.reconcile.several_keys import require_rekeyable
from ingest.reconcile.table_revisions import TableRevisions
from ingest.suppression.personal_names import require_new_names
from ingest.values.columns import Column

_log = logging.getLogger(__name__)
Messages = Mapping[str, Collection[ToldVersion]]


@dataclass(frozen=True)
class _Known:
    """The versions that the messages read so far tell.

    Attributes:
        by_origin: origin → table → versions.
        in_table_names: (table, origin, columns) → versions with the names of the table's columns: each batch of a table
            asks for the same ones.
    """

    by_origin: Mapping[str, Mapping[str, frozenset[Version]]]
    in_table_names: dict[tuple[str, str, tuple[str, ...]], frozenset[Version]] = field(default_factory=dict)


class ToldTables:
    """The told versions of tables, which are read once and after each slice with messages."""

    def __init__(
        self,
        history: SchemaHistory,
        rules: Rules,
        revisions: TableRevisions,
        policies: ChangePolicies,
        more: SchemaHistory | None = None,
    ) -> None:
        """`more`: messages that are known besides those of `history`."""
        self._history = history
        self._revisions = revisions
        self._policies = policies
        self._more = more
        self._rules = rules
        self._known: _Known | None = None
        self._logged: set[Place] = set()
        self._unfollowed: set[str] = set()
        self._merged_before: dict[str, Place] = {}
        self._checked: dict[str, frozenset[Version]] = {}
        self._admissions: dict[str, tuple[frozenset[Version], CatalogEntry | None, Admission]] = {}

    def add(self, events: DataFrame) -> None:
        """Stores the messages among the events, which are rows of bronze."""
        self._history.add(events)
        self.refresh()

    def refresh(self) -> None:
        """Lets the messages be read again."""
        self._known = None

    def admission(self, table: str, origin: str) -> Admission:
        """Returns what a table takes of what messages tell, by its schema policy. `origin`: the table's server and
        database; messages of others are not about it."""
        entry = self._revisions.get(table)
        told = self._told(table, entry, origin)
        known = self._admissions.get(table)
        if known is None or known[0] is not told or known[1] is not entry:
            found = Admission(told)
            if not self._rules.follows_messages(table):
                self._log_unfollowed(table)
            else:
                found = admitted(told, self._rules.policy_of(table), self._following(table, entry, told))
            known = self._admissions[table] = told, entry, found
        return known[2]

    def _following(self, table: str, entry: CatalogEntry | None, told: Collection[Version]) -> FollowingTable:
        """Returns a table as far as it is known before it takes what is told."""
        key = self._rules.primary_keys.get(table, ()) if entry is None else entry.table_schema.key
        accepted = {version.since for version in self._rules.accepted.get(table, Accepted()).versions}
        versions = frozenset[Version]()
        if entry is not None:
            versions = entry.versions or frozenset({untyped_version(entry.table_schema.columns)})
            seen = max((one.since for one in entry.versions), default=())
            if not entry.told_versions and seen:
                # Its events have shown these changes before, or went on without showing them.
                seen = max(seen, self._merged_before.get(table, ()))
                accepted |= {one.since for one in told if one.since <= seen}
        return FollowingTable(key, self._rules.has_declared_key(table), versions, frozenset(accepted))

    def _versions(self, table: str, origin: str, columns: Collection[str] = ()) -> frozenset[Version]:
        """Returns what is told of a table, with the names that its columns have there. `columns`: those that the table
        has already. Nothing if its renames are declared: it goes by its events then."""
        if not self._rules.follows_messages(table):
            return frozenset()
        known, of_table = self._all(), (table, origin, tuple(columns))
        if of_table not in known.in_table_names:
            found = [
                tables[table]
                for told_by, tables in known.by_origin.items()
                if table in tables and not origins_differ(origin, told_by)
            ]
            every = frozenset[Version]().union(*found)
            known.in_table_names[of_table] = in_table_names(every, self._rules.spelling(table), columns)
        return known.in_table_names[of_table]

    def follow(self, table: str, stored: TableState, origin: str = "", loses_key: bool = False) -> None:
        """Brings a table to what messages tell of it: first to other names and new columns, then to another key. Of a
        new table it only decides on the changes. `origin`: its server and database. `loses_key`: also to none, as no
        event that carries a key is about to be merged.

        Raises TableUnusable if the schema policy refuses a change, or if a personal column has got a name that the
        pipeline's file doesn't have."""
        self._revisions.bring_up(table, stored)
        entry = self._revisions.rename(table, self._rules.new_names(table), stored)
        told = self._told(table, entry, origin)
        self._require_new_names(table, told)
        if told and entry is not None and not entry.told_versions and table not in self._merged_before:
            self._merged_before[table] = newest_position(stored)
            self._admissions.pop(table, None)
        admission = self.admission(table, origin)
        self._policies.settle(table, admission.decisions, told=True)
        if entry is None:
            return
        if admission.versions != entry.told_versions:
            followed = followed_entry(entry, admission.versions)
            columns = entry.table_schema.columns, followed.table_schema.columns
            require_within(exceeded_limit(*columns, entry.added_columns, self._rules.limits))
            entry = self._revisions.record(entry, followed, stored)
        key = key_in_force(entry.table_schema, entry.lives, self._rules)
        if key != entry.table_schema.key:
            self._rekey(entry, key, stored)
        elif loses_key and not self._rules.has_declared_key(table) and (since := told_loss(entry, stored)) is not None:
            require_rekeyable(table, stored, {(): ()})
            self._revisions.record(entry, without_key(entry, since), stored)

    def _rekey(self, entry: CatalogEntry, key: Key, stored: TableState) -> None:
        """Brings a table to another key, and then removes what only its former key had."""
        require_rekeyable(entry.table_schema.table, stored, {key: key})
        former_keys = tuple(sorted({*entry.former_keys, entry.table_schema.key} - {key}))
        rekeyed = replace(entry, table_schema=replace(entry.table_schema, key=key), former_keys=former_keys)
        entry = self._revisions.record(entry, rekeyed, stored)
        columns = followed_columns(entry.table_schema.columns, entry.lives, entry.versions, key)
        if columns != entry.table_schema.columns:
            without = replace(entry, table_schema=replace(entry.table_schema, columns=columns))
            self._revisions.record(entry, without, stored)

    def _require_new_names(self, table: str, told: frozenset[Version]) -> None:
        settings = self._rules.personal_columns(table)
        if settings and self._checked.get(table) is not told:
            require_new_names(table, settings, lives(told))
            self._checked[table] = told

    def behind(self) -> list[str]:
        """Returns the tables to which `follow` has something to do."""
        found = ((entry, self.admission(entry.table_schema.table, entry.origin)) for entry in self._revisions.all())
        behind = (entry for entry, one in found if one.decisions or one.versions != entry.told_versions)
        return sorted(entry.table_schema.table for entry in behind)

    def _told(self, table: str, entry: CatalogEntry | None, origin: str) -> frozenset[Version]:
        """Returns what messages tell of a table, in its names. `entry`: None if it is new."""
        if entry is None:
            return self._versions(table, origin)
        if not self._rules.follows_messages(table):
            return entry.told_versions
        of_table = (table, entry.origin or origin, entry.table_schema.names)
        told = self._versions(*of_table)
        if not {version.since for version in entry.told_versions} <= {version.since for version in told}:
            # Another writer has captured more messages.
            self.refresh()
            told = self._versions(*of_table)
        return told

    def _all(self) -> _Known:
        """Returns the versions of all tables; messages that can't be read as versions that say so."""
        known = self._known
        if known is None:
            by_origin: dict[str, dict[str, list[ToldVersion]]] = {}
            histories = [one for one in (self._history, self._more) if one is not None and one.exists()]
            for table, messages in (pair for one in histories for pair in one.all_told().items()):
                for message in messages:
                    origin = former_origin(message.origin, self._rules.renamed) if message.origin else UNNAMED
                    by_origin.setdefault(origin, {}).setdefault(table, []).append(message)
            known = _Known({origin: _versions(messages) for origin, messages in by_origin.items()})
            self._log_faults(message for tables in by_origin.values() for found in tables.values() for message in found)
            self._known = known
        return known

    def _log_unfollowed(self, table: str) -> None:
        """Logs, once, that messages about a table have no effect."""
        is_told = any(table in tables for tables in self._all().by_origin.values())
        if is_told and table not in self._unfollowed:
            self._unfollowed.add(table)
            _log.warning("%s", unfollowed(table))

    def _log_faults(self, messages: Iterable[ToldVersion]) -> None:
        """Logs each message that can't be read, once."""
        for message in messages:
            if message.fault is not None and message.since not in self._logged:
                self._logged.add(message.since)
                text = "%s; until the next message only its events show the table → %s"
                _log.warning(text, message.fault.problem, message.fault.remedy)


def _versions(told: Messages) -> dict[str, frozenset[Version]]:
    """Returns the versions of each table of one database. A message that names no table may be about any."""
    readable = {
        table: [message.version for message in messages if message.version is not None]
        for table, messages in told.items()
    }
    found = {table: versions for table, versions in versions_by_name(readable).items() if versions}
    faults = {table: _faults(messages) for table, messages in told.items()}
    unnamed = faults.pop(DDL_MESSAGE, frozenset())
    return {table: versions | faults.get(table, frozenset()) | unnamed for table, versions in found.items()}


def _faults(messages: Collection[ToldVersion]) -> frozenset[Version]:
    return frozenset(unreadable_version(message.since) for message in messages if message.version is None)


def followed_entry(entry: CatalogEntry, told: frozenset[Version]) -> CatalogEntry:
    """Returns a table's entry after what messages tell, with the columns of its key under the names that they have
    now."""
    versions = entry.seen_versions | told
    now, table_schema = lives(versions), entry.table_schema
    columns = with_newest_types(followed_columns(table_schema.columns, now, versions, table_schema.key), now)
    key, *former = (renamed_key(one, now) for one in (table_schema.key, *entry.former_keys))
    followed = replace(table_schema, columns=columns, key=key or table_schema.key)
    former_keys = tuple(one for one in former if one is not None)
    return replace(entry, table_schema=followed, versions=versions, former_keys=former_keys)


def new_as_told(
    table: str, columns: tuple[TableColumn, ...], key: Key | None, told: frozenset[Version], rules: Rules
) -> tuple[tuple[TableColumn, ...], Key | None]:
    """Returns the columns and the key of a new table after what messages tell. `key`: that of a record."""
    if not told or key is None:
        return columns, key
    now = lives(told)
    columns = followed_columns(columns, now, told)
    known = renamed_key(rules.spelling(table).table_names(key, now.shown).values(), now) or key
    return columns, key_in_force(TableSchema(table, known, columns), now, rules)


def key_in_force(table_schema: TableSchema, now: Lives, rules: Rules) -> Key:
    """Returns the key that messages tell, if nothing else decides it; else that of the table."""
    told, table = told_key(now), table_schema.table
    is_decided = rules.has_declared_key(table) or not table_schema.key
    is_other = {*told} != {*table_schema.key} and {*told} <= {*table_schema.names}
    return told if told and is_other and not is_decided else table_schema.key


def names_of_group(
    group: Group, arrived: Sequence[Column], columns: Sequence[TableColumn], now: Lives, spelling: Spelling
) -> dict[str, str]:
    """Returns column of a group's events → its name now, of those that have another one."""
    found = ((c, columns_of_group(group, (c,), columns, now, spelling)) for c in arrived)
    return {column.name: named.name for column, same in found for named in same if named.name != column.name}


def columns_of_group(
    group: Group, arrived: tuple[Column, ...], columns: Sequence[TableColumn], now: Lives, spelling: Spelling
) -> tuple[Column, ...]:
    """Returns the columns of a group's events by the names that they have now. `columns`: those of the table."""
    names = spelling.table_names([c.name for c in arrived], (c.name for c in columns))
    if now.places and group.first_position >= now.places[-1]:
        return tuple(c for c in arrived if keeps_name(names[c.name], now))
    last = group.last_position
    if group.may_have_unplaced_reads:
        last = max(last, *now.places)  # They are as new as the table.
    return columns_now(arrived, names, now, group.first_position, last)
