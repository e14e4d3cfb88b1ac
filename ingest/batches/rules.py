"""The settings of a pipeline that say how its changelog is read, as plain values; the same for a stream, a backfill and
a replay."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from ingest.changelog.naming import Naming
from ingest.changelog.origin import TableNaming
from ingest.changelog.spelling import Spelling
from ingest.evolution.policies import Limits
from ingest.evolution.schema_policy import EVOLVE, Accepted, SchemaPolicy
from ingest.shredding.owners import Shredded
from ingest.sources.source_catalog import SourceCatalog
from ingest.suppression.masks import Masks
from ingest.suppression.subjects import Subjects
from ingest.tuning import DEFAULT_TUNING, Tuning
from ingest.values.columns import Column
from ingest.values.types import OutOfRange

DEFAULT_PLACEHOLDER = "__debezium_unavailable_value"


@dataclass(frozen=True)
class Rules:
    """`primary_keys`: table → columns; empty for a table whose creates are rows of their own. `columns`: table → column
    → logical type, where the events don't tell. `columns_as_stored`: these types are those that the tables have
    already. `declared`: table → column → logical type that the table's column has whatever the events carry.
    `column_renames`: table → column of an event → column of the table. `table_topics`: topic → its only table.
    `whole_snapshots`: a snapshot reads every row, so rows that it lacks are gone. `append_only`: keyless tables whose
    rows are never removed. `epochs`: times at which the source's log began anew. `stops_at_restart`: stop where the log
    seems to begin anew without an epoch. `stops_at_two_partitions`: stop where changes of a key without positions lie
    in two partitions. `history`: tables whose row versions are kept. `personal`: table → columns of which no statistics
    are written. `subjects`: the tables and keys of data subjects. `ledger`, `key_file`: the ledger of erasure requests,
    and the keys of its hashes. `suppresses_later_reads`: suppress snapshot reads of erased rows until a create.
    `masks`: what an erasure writes over rows that stay. `shredded`: encrypted columns, and the owners of their keys.
    `renamed`: origin → its former name. `origins`: table → its server and database, where its catalog doesn't tell.
    `only`: the only tables to merge. `without`: tables not to merge. `times_out_of_range`: what
    becomes of dates and timestamps outside of the years 1 to 9999. `keyless`: merge keyless tables; false where events
    may be delivered once more, because their rows are counted. `tuning`: thresholds, which change no result.
    `policy`: what becomes of changes of tables. `policies`: table → policy of its own. `accepted`: table → changes that
    were decided before, where a table is folded anew. `declared_renames`: table → column before → column after, of
    columns that the source has renamed. `limits`: of tables' columns. `source_catalog`: that of the source's database;
    None if the pipeline's file names no connection to it."""

    naming: Naming = field(default_factory=Naming)
    primary_keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    columns: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    columns_as_stored: bool = False
    declared: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    table_topics: Mapping[str, str] = field(default_factory=dict)
    include_tables: str | None = None
    exclude_tables: str | None = None
    placeholder: str = DEFAULT_PLACEHOLDER
    fold_case: bool = False
    column_renames: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    whole_snapshots: bool = True
    append_only: frozenset[str] = frozenset()
    epochs: tuple[datetime, ...] = ()
    stops_at_restart: bool = True
    stops_at_two_partitions: bool = False
    history: frozenset[str] = frozenset()
    personal: Mapping[str, frozenset[str]] = field(default_factory=dict)
    subjects: Subjects = field(default_factory=Subjects)
    ledger: str | None = None
    key_file: str | None = None
    suppresses_later_reads: bool = False
    masks: Mapping[str, Masks] = field(default_factory=dict)
    shredded: Shredded = field(default_factory=Shredded)
    renamed: Mapping[str, str] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    only: frozenset[str] | None = None
    without: frozenset[str] = frozenset()
    keyless: bool = True
    times_out_of_range: OutOfRange = OutOfRange.CLAMP
    tuning: Tuning = DEFAULT_TUNING
    policy: SchemaPolicy = EVOLVE
    policies: Mapping[str, SchemaPolicy] = field(default_factory=dict)
    accepted: Mapping[str, Accepted] = field(default_factory=dict)
    declared_renames: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    source_catalog: SourceCatalog | None = None

    @property
    def names(self) -> TableNaming:
        return self.naming.names

    @property
    def view(self) -> tuple[object, ...]:
        """Returns what the places and table names of events in bronze depend on: plain values with a stable text."""
        return self.epochs, self.names.parts, tuple(sorted(self.names.mapped))

    def policy_of(self, table: str) -> SchemaPolicy:
        """Returns what becomes of changes of the table."""
        return self.policies.get(table, self.policy)

    def has_declared_key(self, table: str) -> bool:
        """Returns whether the pipeline's file decides the table's key, whatever its events carry."""
        return table in self.primary_keys or table in self.append_only

    def follows_messages(self, table: str) -> bool:
        """Returns whether the table becomes what messages of the source tell of it, as far as its schema policy admits
        it. A table whose renames are declared goes by its events."""
        return not self.declared_renames.get(table)

    def new_names(self, table: str) -> dict[str, str]:
        """Returns column before → column of the table, of columns that the source has renamed."""
        spelling = self.spelling(table)
        return {old: spelling.new_name(old) for old in self.declared_renames.get(table, {})}

    def personal_columns(self, table: str) -> dict[str, Collection[str]]:
        """Returns setting → columns with personal values, or that lead to their subjects, which it names."""
        key = self.subjects.keys.get(table)
        found: dict[str, Collection[str]] = {
            "personal": self.personal.get(table, ()),
            "on_erasure": self.masks.get(table, {}).keys(),
            "shred": self.shredded.columns.get(table, ()),
            "subject": [*([] if key is None else [key]), *self.subjects.links.get(table, ())],
        }
        return {setting: names for setting, names in found.items() if names}

    def spelling(self, table: str) -> Spelling:
        """Returns how the columns of the table's events are named in the table."""
        return Spelling(self.fold_case, tuple(sorted(self.column_renames.get(table, {}).items())))

    def column_names(
        self, table: str, wire: Iterable[Column], table_columns: Iterable[str]
    ) -> tuple[tuple[str, str], ...]:
        """Returns (column of the event, column of the table) where the two differ. `table_columns`: the table's."""
        found = self.spelling(table).table_names((c.name for c in wire), table_columns)
        return tuple((arrived, name) for arrived, name in found.items() if arrived != name)

    def takes(self, table: str) -> bool:
        """Returns whether the table is merged. Patterns match whole names, with or without the schema; exclusion
        wins."""
        if table in self.without or (self.only is not None and table not in self.only):
            return False
        names = (table, table.split(".", maxsplit=1)[-1])

        def matches(pattern: str) -> bool:
            return any(re.fullmatch(pattern, name) for name in names)

        if self.exclude_tables is not None and matches(self.exclude_tables):
            return False
        return self.include_tables is None or matches(self.include_tables)
