"""Records the revisions of a pipeline's tables in the catalog, and brings the stored tables to them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import pairwise

from pyspark.sql import SparkSession

from ingest.batches.policies.change_policies import SCHEMA_CHANGE
from ingest.changelog.position import position_literal
from ingest.delta.conflict_retry import CONFLICTS
from ingest.errors import TableUnusable
from ingest.evolution.definition import FillKind, Origin
from ingest.evolution.followed import renamed_key
from ingest.evolution.keys import Key
from ingest.evolution.life import Lives
from ingest.evolution.type_steps import keep_values, values_after
from ingest.lakehouse.catalog import Catalog, CatalogEntry
from ingest.lakehouse.rekeying import log_unknown_keys, rekey
from ingest.merge.table_schema import TableSchema
from ingest.names import Lakehouse
from ingest.reconcile.changeset import TableState
from ingest.reconcile.refolds import refold_reason
from ingest.values.postgres_cast import Known, known_values
from ingest.values.types import INFERRED_NUMBERS, Kind

_log = logging.getLogger(__name__)


class TableRevisions:
    """The catalog's entries of one pipeline, as this run knows them."""

    def __init__(self, spark: SparkSession, pipeline: str, lakehouse: Lakehouse) -> None:
        self._pipeline = pipeline
        self._catalog = Catalog(spark, lakehouse.tables)
        self._entries = {e.table_schema.table: e for e in self._catalog.entries(pipeline)}
        self._brought_up: dict[str, int] = {}
        self._part_keys = set[tuple[str, Key]]()

    def get(self, table: str) -> CatalogEntry | None:
        """Returns the newest entry of a table; None where it is new."""
        return self._entries.get(table)

    def all(self) -> Collection[CatalogEntry]:
        """Returns the newest entry of each table."""
        return self._entries.values()

    def refresh(self) -> None:
        """Reads the catalog again, because another writer may have changed it, and the stored tables with it."""
        self._brought_up.clear()
        self._entries |= {e.table_schema.table: e for e in self._catalog.entries(self._pipeline)}

    def bring_up(self, table: str, stored: TableState, known: CatalogEntry | None = None) -> None:
        """Brings the stored tables to the catalog's newest revision, each in one commit, or in two (`evolve_table`): a
        run may have died, or be at work, between the catalog and some of them. `known`: an earlier entry, which need
        not be read again."""
        entry = self._entries.get(table)
        if entry is None or self._brought_up.get(table) == entry.revision:
            return
        for part in stored.tables:
            part.finish_columns()
            revision = part.revision()
            if revision < entry.revision and (revision or entry.is_intent):
                before = self._entry_of(entry, revision, known)
                begin, key = entry.lives.begin, before.table_schema.key
                if begin is not None and begin != before.lives.begin:
                    # The relation that these rows belonged to is gone, and columns of the same names are others now.
                    part.truncate(position_literal(begin))
                if entry.table_schema.key in (key, renamed_key(key, entry.lives)):
                    part.evolve(before.table_schema, entry.table_schema, entry.altered_since(before))
                    if part is stored.silver:
                        _log_unknown_keys(stored, before.table_schema, entry.table_schema)
                else:  # A revision of its own, of all tables that hold rows.
                    former = [key for key in entry.former_keys if key != before.table_schema.key]
                    dropped = [name for name, life in entry.lives.shown.items() if life.end is not None]
                    rekey(stored, before.table_schema, entry.table_schema, former, entry.required_key, dropped)
        self._brought_up[table] = entry.revision

    def _entry_of(self, newest: CatalogEntry, revision: int, known: CatalogEntry | None) -> CatalogEntry:
        """Returns the entry of a stored table's revision. `known`: an earlier entry, which need not be read again."""
        is_known = known is not None and revision == (known.revision if known.is_intent else 0)
        return known if is_known and known else self._catalog.entry_of_revision(newest, revision)

    def rename(self, table: str, names: Mapping[str, str], stored: TableState) -> CatalogEntry | None:
        """Gives columns of a table other names and returns its entry; None if it is new. `names`: name before → name,
        as the pipeline's file declares. Raises TableUnusable for a column of the key, or if messages tell renames."""
        entry = self._entries.get(table)
        renamed = entry.renamed(names) if entry is not None else None
        if entry is None or renamed is None:
            return None
        if names and entry.told_versions:
            raise TableUnusable(
                SCHEMA_CHANGE,
                "the source's messages tell its renames, and the pipeline's file declares some too",
                f"remove them: tables: {{{table}: {{renames: …}}}}",
            )
        if renamed is entry:
            return entry
        if {*entry.table_schema.key} & {old for old, _ in renamed.renames[len(entry.renames) :]}:
            raise TableUnusable(
                SCHEMA_CHANGE,
                f"a column of its key is declared to be renamed ({', '.join(entry.table_schema.key)})",
                f"fold the table anew: ingest backfill {self._pipeline} --rebuild --table {table}",
            )
        return self.record(entry, renamed, stored)

    def record(self, entry: CatalogEntry | None, new: CatalogEntry, stored: TableState) -> CatalogEntry:
        """Records `new` as the next revision of `entry`, brings the stored tables to it, and returns it. Raises
        Contended or Delta's conflict errors if another writer has recorded the revision first."""
        revision = entry.revision + 1 if entry else 1
        table_schema = replace(new.table_schema, revision=revision)
        recorded = replace(new, revision=revision, table_schema=table_schema, is_intent=True)
        if entry is not None and entry.told_versions != recorded.told_versions:
            recorded = replace(recorded, refold=self._refold(entry, recorded, stored))
        try:
            self._catalog.record(recorded, entry.versions if entry else frozenset())
        except CONFLICTS:
            # Another writer was the first to record this revision.
            self.refresh()
            raise
        before = entry.lives if entry else Lives()
        _log_unknown_fills(self._pipeline, table_schema.table, before, recorded.lives)
        _log_assumed_fills(self._pipeline, table_schema.table, before, recorded.lives)
        _log_new_types(self._pipeline, table_schema.table, before, recorded.lives)
        if entry is not None:
            _log_inferred_texts(self._pipeline, entry.table_schema, table_schema)
            if not table_schema.key:
                _log_likely_rows(table_schema.table, before, recorded.lives)
        self._entries[table_schema.table] = recorded
        self.bring_up(table_schema.table, stored, entry)
        return recorded

    def log_part_keys(self, table: str, key: Key, parts: Collection[Key]) -> None:
        """Logs, once each, keys of events without a schema that name only some of the table's key columns."""
        for part in sorted(parts):
            if (table, part) not in self._part_keys:
                self._part_keys.add((table, part))
                _log.warning(
                    "%s: events without a schema have the key (%s), and the table has (%s): the other columns are "
                    "taken to be null. If the source has another key now, rows from before stay beside newer ones: "
                    "declare primary_key of the table, then run: ingest backfill %s --rebuild --table %s",
                    *(table, ", ".join(part), ", ".join(key), self._pipeline, table),
                )

    def _refold(self, entry: CatalogEntry, new: CatalogEntry, stored: TableState) -> str:
        """Returns why the table has to be folded from its events again, which is logged; empty if it need not."""
        reason = refold_reason(entry.lives, new.lives, stored)
        if reason:
            table = new.table_schema.table
            _log.warning(
                "%s: messages about the table came after events of later positions, and %s: ingest run folds it anew "
                "from its events, as does: ingest backfill %s --rebuild --table %s",
                *(table, reason, self._pipeline, table),
            )
        return reason or entry.refold


def _log_unknown_keys(stored: TableState, before: TableSchema, after: TableSchema) -> None:
    """Logs the rows whose key column has got a type that doesn't tell its value."""
    old = {column.name: column.type for column in before.columns}
    changed = [(c.name, old[c.name], c.type) for c in after.columns if c.name in after.key and c.name in old]
    doubtful = [name for name, was, now in changed if was != now and known_values(was, now) is not Known.EVERY]
    if doubtful and stored.silver.exists():
        log_unknown_keys(stored.silver.rows(), after, doubtful)


def _log_assumed_fills(pipeline: str, table: str, before: Lives, after: Lives) -> None:
    """Logs each column that is new in `after` and for which rows from before read the default of an event's schema."""
    known = {(life.column, life.begin) for life in before.columns}
    for life in after.columns:
        is_assumed = life.origin is Origin.SEEN and life.fill.kind is FillKind.CONSTANT
        if is_assumed and (life.column, life.begin) not in known:
            _log.warning(
                "%s: rows from before column %r was added read its default, as the schema of its first event shows it; "
                "if the source has other values there, run: ingest resync %s %s",
                *(table, life.column, pipeline, table),
            )


def _log_unknown_fills(pipeline: str, table: str, before: Lives, after: Lives) -> None:
    """Logs each column that is new in `after` and whose values in rows from before are known to the source only."""
    known = {(life.column, life.begin) for life in before.columns}
    for life in after.shown.values():
        is_unknown = life.begin is not None and life.fill.kind is FillKind.UNKNOWN
        if is_unknown and (life.column, life.begin) not in known:
            default = "may have" if life.origin is Origin.SEEN else "has"
            _log.warning(
                "%s: column %r was added, and %s a default that only the source knows: rows from before read null "
                "here; to read them again, run: ingest resync %s %s",
                *(table, life.column, default, pipeline, table),
            )


def _log_likely_rows(table: str, before: Lives, after: Lives) -> None:
    """Logs each column that is new in `after`, in a table without a key, by which rows from before can't be told apart:
    it may have a value there that no event shows, or be one that had another name."""
    for column, at in after.untold_below.items():
        if before.untold_below.get(column) != at:
            _log.warning(
                "%s has no key, and its new column %r may have other values in rows from before, or have had another "
                "name: updates and deletes find these rows by the other columns, so that of several alike another one "
                "may be gone; let the source tell it (ingest connector ddl-trigger postgres), or take a new snapshot",
                *(table, column),
            )


def _log_new_types(pipeline: str, table: str, before: Lives, after: Lives) -> None:
    """Logs each change of a column's type that is new in `after` with what values from before are now, if they are
    others, or no message tells that no expression computed them."""
    known = {(life.column, step) for life in before.columns for step in pairwise(life.types)}
    for life in after.shown.values():
        for old, new in pairwise(life.types):
            if (life.column, (old, new)) in known or old.type is None or new.type is None:
                continue
            is_kept = keep_values((old, new))
            if not is_kept or life.number is None:
                values = values_after(old, new, new.is_unknown)
                _log.warning(
                    "%s: column %r was %s and is %s: values from before are %s; if the source has other values there, "
                    "run: ingest resync %s %s",
                    *(table, life.column, old.type, new.type, "as they were" if is_kept else values, pipeline, table),
                )


def _log_inferred_texts(pipeline: str, before: TableSchema, after: TableSchema) -> None:
    """Logs each column of events without a schema that held numbers and holds texts now."""
    numbers = {column.name for column in before.columns if column.inferred and column.type.kind in INFERRED_NUMBERS}
    for column in after.columns:
        if column.name in numbers and column.inferred and column.type.kind is Kind.STRING:
            _log.warning(
                "%s: column %r held numbers, and its events have texts now. Without a schema, Debezium sends numeric "
                "values as base64: if it is numeric at the source, declare it (columns: {%s: decimal_from_base64(P,S)})"
                ", then run: ingest backfill %s --rebuild --table %s",
                *(after.table, column.name, column.name, pipeline, after.table),
            )
