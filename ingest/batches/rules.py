"""What a pipeline was told about its changelog, as plain values: the same for a stream, a backfill and a replay."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from ingest.changelog.envelope import Naming
from ingest.changelog.origin import TableNaming
from ingest.changelog.spelling import Spelling
from ingest.changelog.values.columns import Column
from ingest.changelog.values.types import OutOfRange
from ingest.shredding.owners import Shredded
from ingest.suppression.masks import Masks
from ingest.suppression.subjects import Subjects

DEFAULT_PLACEHOLDER = "__debezium_unavailable_value"


@dataclass(frozen=True)
class Rules:
    """`primary_keys`: table → columns, empty for a table whose creates are rows of their own. `columns`: table →
    column → logical type, where the events don't tell. `columns_as_stored`: these are the types that tables
    have already, not what a user declares. `column_renames`: table → column of an event → column of the
    table. `table_topics`: topic → the one table in it. `whole_snapshots`: a snapshot reads every row, so what it
    lacks is gone. `append_only`: tables without a key whose rows are never taken away. `epochs`: when the source's
    log began anew. `stops_at_restart`: where it seems to have begun anew and nobody said so.
    `stops_at_two_partitions`: where changes of a key without positions stand in two. `history`: tables of which all
    versions are kept. `personal`: table → columns of which nothing gets into statistics. `subjects`: whose rows are
    whose. `ledger`, `key_file`: where it stands what was asked to be erased, and the keys of its hashes. `masks`:
    what an erasure leaves of tables whose rows stay. `shredded`: columns that are encrypted, and by whose key.
    `renamed`: origin → the one that it was called before. `origins`: table → whose it is, where its catalog doesn't
    tell. `only`: tables beside which none is wanted. `without`: tables that are not. `times_out_of_range`: what
    becomes of dates and timestamps outside of the years 1 to 9999. `keyless`: tables without a key are written;
    their rows are counted, so who delivers events once more must leave them alone."""

    naming: Naming = field(default_factory=Naming)
    primary_keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    columns: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    columns_as_stored: bool = False
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
    masks: Mapping[str, Masks] = field(default_factory=dict)
    shredded: Shredded = field(default_factory=Shredded)
    renamed: Mapping[str, str] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    only: frozenset[str] | None = None
    without: frozenset[str] = frozenset()
    keyless: bool = True
    times_out_of_range: OutOfRange = OutOfRange.CLAMP

    @property
    def names(self) -> TableNaming:
        """How tables are named."""
        return self.naming.names

    @property
    def view(self) -> tuple[object, ...]:
        """By which bronze places its events and names their tables: plain values, of which the text is always the
        same."""
        return self.epochs, self.names.parts, tuple(sorted(self.names.mapped))

    def spelling(self, table: str) -> Spelling:
        """How the table's columns are named after those of its events."""
        return Spelling(self.fold_case, tuple(sorted(self.column_renames.get(table, {}).items())))

    def column_names(self, table: str, wire: Iterable[Column], there: Iterable[str]) -> tuple[tuple[str, str], ...]:
        """As an `ImageReader` takes them. `there`: the table's columns."""
        found = self.spelling(table).table_names((c.name for c in wire), there)
        return tuple((arrived, own) for arrived, own in found.items() if arrived != own)

    def takes(self, table: str) -> bool:
        """Whether the table is wanted: whole names, with or without their schema; exclusion wins."""
        if table in self.without or (self.only is not None and table not in self.only):
            return False
        names = (table, table.split(".", maxsplit=1)[-1])

        def matches(pattern: str) -> bool:
            return any(re.fullmatch(pattern, name) for name in names)

        if self.exclude_tables is not None and matches(self.exclude_tables):
            return False
        return self.include_tables is None or matches(self.include_tables)
