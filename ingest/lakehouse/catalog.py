"""The catalog: the silver tables with their paths, keys and columns.

A Delta table with a row for the creation of each table and for each change of its columns; the newest row of a table
counts. It holds names of the source as data, so that none of them gets into a statement or a path.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.delta import delta_table
from ingest.delta.txn_versions import TxnVersion
from ingest.errors import ConfigError
from ingest.evolution.declared_types import with_declared_types
from ingest.evolution.definition import Origin, Place, Version
from ingest.evolution.life import Lives
from ingest.evolution.lives import lives
from ingest.evolution.policies import AddedColumns
from ingest.evolution.revisions import AS_STORED, ColumnRevision, altered_columns
from ingest.evolution.schema_policy import Accepted
from ingest.evolution.seen_definitions import renamed_versions, stored_version
from ingest.lakehouse.schema_json import column_from_json, column_to_json, versions_from_json, versions_to_json
from ingest.merge.table_schema import TableSchema
from ingest.names import caseless, nearest
from ingest.spark.local_rows import local_rows

_SCHEMA = T.StructType(
    [
        T.StructField("pipeline", T.StringType()),
        T.StructField("table", T.StringType()),
        T.StructField("revision", T.LongType()),
        T.StructField("path", T.StringType()),
        T.StructField("primary_key", T.ArrayType(T.StringType())),
        T.StructField("columns", T.StringType()),
        T.StructField("topics", T.ArrayType(T.StringType())),
        T.StructField("origin", T.StringType()),
        T.StructField("versions", T.StringType()),
        T.StructField("former_keys", T.StringType()),
        T.StructField("added_columns", T.StringType()),
        T.StructField("refold", T.StringType()),
        T.StructField("renames", T.StringType()),
        T.StructField("keyless_since", T.StringType()),
    ]
)
_ADDED = ("origin", "versions", "former_keys", "added_columns", "refold", "renames", "keyless_since")
"""Columns that a catalog of an older version lacks."""


@dataclass(frozen=True)
class CatalogEntry:
    """A table in the catalog. `topics`: those that its changes have come from. `origin`: its server and database
    (`changelog.origin`); empty if the source names none. `versions`: those known of its definition; empty if its events
    have no schemas, or none since they are recorded. `former_keys`: keys that events have carried besides the one in
    force."""

    pipeline: str
    path: str
    table_schema: TableSchema
    revision: int
    topics: tuple[str, ...]
    origin: str = ""
    versions: frozenset[Version] = frozenset()
    is_intent: bool = True
    """True if the tables take the revision over after it was recorded; False if an older version of this package wrote
    the entry, which changed the tables first."""
    former_keys: tuple[tuple[str, ...], ...] = ()
    added_columns: AddedColumns = ()
    refold: str = ""
    """Why the table has to be folded from its events again; empty if it need not."""
    renames: tuple[tuple[str, str], ...] = ()
    """(name before, name) of columns that got another one because a pipeline's file declared so, in that order."""
    keyless_since: Place = ()
    """The position below which events may carry one of the `former_keys`, if the table has no key; () if none do."""

    @cached_property
    def lives(self) -> Lives:
        """The lives of the columns: without versions, all that the table has."""
        columns = self.table_schema.columns
        return with_declared_types(lives(self.versions or {stored_version(columns)}), columns)

    @property
    def accepted(self) -> Accepted:
        """The changes of the table that were decided by now."""
        return Accepted(self.table_schema.columns, self.versions, (self.table_schema.key, *self.former_keys))

    @cached_property
    def seen_versions(self) -> frozenset[Version]:
        """The versions that events show."""
        return self.versions - self.told_versions if self.told_versions else self.versions

    @cached_property
    def told_versions(self) -> frozenset[Version]:
        """The versions that messages tell."""
        return frozenset(version for version in self.versions if version.origin is Origin.TOLD)

    @cached_property
    def required_key(self) -> tuple[str, ...]:
        """The key columns that are NOT NULL at the source: those of the newest version, or the only one of the key."""
        key = self.table_schema.key
        if len(key) < 2 or not self.versions:
            return key[:1] if len(key) == 1 else ()
        named = (version for version in self.versions if version.definition.columns)
        newest = max(named, key=lambda version: version.since).definition
        return tuple(column.name for column in newest.columns if column.name in key and not column.optional)

    def altered_since(self, before: CatalogEntry) -> tuple[ColumnRevision, ...]:
        """Returns the revisions of columns whose stored values another entry of the table doesn't tell. Rows of a
        keyless table are told apart by the columns that exist, so one that is dropped becomes null."""
        named, stored = before, dict[str, str]()
        for old, new in self.renames[len(before.renames) :]:
            named = named.renamed({old: new})
            stored[new] = stored.pop(old, old)
        found = altered_columns(named.lives, self.lives, keeps_dropped=bool(self.table_schema.key))
        altered = {one.column: one for one in found}
        for new, old in stored.items():
            altered[new] = replace(altered.get(new, ColumnRevision(new, old, AS_STORED)), stored=old)
        return tuple(altered.values())

    def renamed(self, names: Mapping[str, str], folded: bool = False) -> CatalogEntry:
        """Returns the entry with other names of columns; itself if it has none of them. `names`: name before → name.
        A column whose new name another one has stays as it is, unless the rows are `folded` anew."""
        columns = self.table_schema.names
        taken = {caseless(name) for name in columns}
        found = {old: new for old, new in names.items() if old in columns and (folded or caseless(new) not in taken)}
        if not found:
            return self
        renamed = tuple(replace(c, name=found.get(c.name, c.name)) for c in self.table_schema.columns)
        return replace(
            self,
            table_schema=replace(self.table_schema, columns=renamed),
            versions=renamed_versions(self.versions, found),
            renames=(*self.renames, *found.items()),
        )


@dataclass(frozen=True)
class Revision:
    """An entry of the past, and the time at which it was written."""

    entry: CatalogEntry
    at: datetime


class Catalog:
    """The catalog of a lakehouse."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._table = delta_table.Table(spark, path)
        self._is_current = False
        # Tables are merged in parallel; two first appends would both create the table.
        self._commit_lock = threading.Lock()

    def entries(self, pipeline: str | None = None) -> list[CatalogEntry]:
        """Returns the newest entry of each table of one pipeline, or of all, by pipeline and table."""
        if not self._table.exists():
            return []
        rows = _with_added(self._table.rows())
        if pipeline is not None:
            rows = rows.where(F.col("pipeline") == pipeline)
        newest = rows.groupBy("pipeline", "table").agg(
            F.max_by(F.struct(*_SCHEMA.names), F.col("revision")).alias("entry"),
            # A text may withdraw versions of earlier ones.
            F.sort_array(F.collect_list(F.struct("revision", "versions")))["versions"].alias("known"),
        )
        found = newest.select("entry.*", "known").orderBy("pipeline", "table").collect()  # one row per table
        return [_entry(r, versions_from_json(r["known"])) for r in found]

    def revisions(self, pipeline: str) -> list[Revision]:
        """Returns all entries of the pipeline's tables, past ones included, by table and revision."""
        if not self._table.exists():
            return []
        at = F.unix_millis("_metadata.file_modification_time").alias("at")
        rows = _with_added(self._table.rows_in(self._table.files().values()).select("*", at))
        # One row per change of a schema.
        found = rows.where(F.col("pipeline") == pipeline).orderBy("table", "revision").collect()
        known: dict[str, list[str | None]] = {}
        revisions = []
        for row in found:
            known.setdefault(row["table"], []).append(row["versions"])
            entry = _entry(row, versions_from_json(known[row["table"]]))
            revisions.append(Revision(entry, datetime.fromtimestamp(row["at"] / 1000, UTC)))
        return revisions

    def entry_of_revision(self, newest: CatalogEntry, revision: int) -> CatalogEntry:
        """Returns the entry that the rows of a stored table conform to. `newest`: the newest entry of its table.
        `revision`: that of the stored table, 0 if an older version of this package wrote it."""
        if revision >= newest.revision:
            return newest
        name = newest.table_schema.table
        entries = [r.entry for r in self.revisions(newest.pipeline) if r.entry.table_schema.table == name]
        if revision:
            return next(entry for entry in entries if entry.revision == revision)
        older = [entry for entry in entries if not entry.is_intent]
        return older[-1] if older else entries[0]

    def entry(self, pipeline: str, table: str) -> CatalogEntry:
        """Returns the newest entry of one table. Raises ConfigError, with similar names, if there is no such table."""
        return self.require(pipeline, [table])[0]

    def require(self, pipeline: str, tables: Sequence[str]) -> list[CatalogEntry]:
        """Returns the newest entries of these tables. Raises ConfigError as `entry` does."""
        known = {entry.table_schema.table: entry for entry in self.entries(pipeline)}
        for table in tables:
            if table not in known:
                otherwise = "see its tables with: ingest status PIPELINE" if known else "it has none yet"
                raise ConfigError(f"{table} is no table of pipeline {pipeline}", nearest(table, known, otherwise))
        return [known[table] for table in tables]

    def record(self, entry: CatalogEntry, known: Set[Version] = frozenset()) -> None:
        """Appends an entry. Raises Contended if another writer has recorded this revision. `known`: versions that
        earlier entries of the table hold."""
        frame = local_rows(self._spark, [_row(entry, known)], _SCHEMA)
        version = TxnVersion(entry.path, entry.revision)
        with self._commit_lock:
            columns = _SCHEMA if self._lacks_columns() else None
            self._table.commit(frame, txn_version=version, columns=columns, is_small=True)

    def _lacks_columns(self) -> bool:
        """Returns True if an older version of this package wrote the catalog, and no newer one has since."""
        if not self._is_current and self._table.exists():
            self._is_current = set(_ADDED) <= set(self._table.rows().columns)
            return not self._is_current
        return False


def _row(entry: CatalogEntry, known: Set[Version]) -> dict[str, Any]:
    """Returns the row of an entry. `known`: versions that earlier entries of the table hold."""
    table_schema = entry.table_schema
    columns = [column_to_json(c) for c in table_schema.columns]
    return {
        "pipeline": entry.pipeline,
        "table": table_schema.table,
        "revision": entry.revision,
        "path": entry.path,
        "primary_key": list(table_schema.key),
        "columns": json.dumps(columns, ensure_ascii=False),
        "topics": list(entry.topics),
        "origin": entry.origin or None,
        # Never null: that is an entry of an older version.
        "versions": versions_to_json(entry.versions - known, known - entry.versions),
        "former_keys": json.dumps(entry.former_keys, ensure_ascii=False) if entry.former_keys else None,
        "added_columns": json.dumps(entry.added_columns) if entry.added_columns else None,
        "refold": entry.refold or None,
        "renames": json.dumps(entry.renames, ensure_ascii=False) if entry.renames else None,
        "keyless_since": json.dumps(entry.keyless_since) if entry.keyless_since else None,
    }


def _with_added(rows: DataFrame) -> DataFrame:
    """Returns the catalog's rows with null in the columns that it lacks."""
    return rows.withColumns({name: F.lit(None).cast("string") for name in _ADDED if name not in rows.columns})


def _entry(row: Row, versions: frozenset[Version]) -> CatalogEntry:
    columns = tuple(map(column_from_json, json.loads(row["columns"])))
    table_schema = TableSchema(row.table, tuple(row.primary_key), columns, row.revision)
    topics, origin, is_intent = tuple(row.topics), row.origin or "", row.versions is not None
    texts = (row.former_keys, row.added_columns, row.renames)
    former, added, renames = (tuple(map(tuple, json.loads(text or "[]"))) for text in texts)
    entry = CatalogEntry(row.pipeline, row.path, table_schema, row.revision, topics, origin, versions, is_intent)
    entry = replace(entry, former_keys=former, added_columns=added, refold=row.refold or "", renames=renames)
    return replace(entry, keyless_since=tuple(json.loads(row.keyless_since or "[]")))
