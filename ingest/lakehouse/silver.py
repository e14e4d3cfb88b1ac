"""Silver: one Delta table per source table with its live rows and nothing else, for any Delta reader."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.change import COLUMN_POSITIONS, COLUMN_POSITIONS_TYPE, POSITION_COLUMN, SOURCE_TS, quoted
from ingest.changelog.position import POSITION
from ingest.delta import compaction, delta_table
from ingest.delta.commit_log import THROUGH_BATCH, WRITER, CommitSummary
from ingest.delta.compaction import compact
from ingest.delta.conflict_retry import retry_on_conflict
from ingest.delta.data_file import DataFile
from ingest.delta.file_index import located
from ingest.delta.read_table import MAPPING
from ingest.delta.txn_versions import TxnVersion
from ingest.evolution.revisions import ColumnRevision
from ingest.internal_columns import LOCATION
from ingest.lakehouse import page_index
from ingest.lakehouse.column_changes import evolve_table
from ingest.lakehouse.file_layout import new_file_count
from ingest.lakehouse.row_changes import RowChanges
from ingest.lakehouse.silver_rows import SilverRows
from ingest.lakehouse.table_properties import STATISTICS, silver_properties
from ingest.merge.actions import DELETE, INSERT, UPDATE
from ingest.merge.key_join import joined_by_key
from ingest.merge.table_schema import TableSchema
from ingest.names import caseless
from ingest.spark.checkpoints import checkpoint
from ingest.spark.prepared import Query, run_prepared
from ingest.tuning import DEFAULT_TUNING, Tuning

_REVISION = "schema"
"""The application whose version in a table is the revision of the catalog's entry that its rows conform to."""


class Silver:
    """The silver table of one source table."""

    system_columns: ClassVar[T.StructType] = T.StructType(
        [
            T.StructField(POSITION_COLUMN, POSITION),
            T.StructField(SOURCE_TS, T.TimestampType()),
            T.StructField(COLUMN_POSITIONS, COLUMN_POSITIONS_TYPE),
        ]
    )
    """Columns besides the table's own."""
    version_columns: ClassVar[tuple[str, ...]] = ()
    """Those of the system columns that distinguish rows of one key."""

    def __init__(
        self,
        spark: SparkSession,
        path: str,
        personal: frozenset[str] = frozenset(),
        tuning: Tuning = DEFAULT_TUNING,
    ) -> None:
        """`personal`: columns whose values must not get into the log."""
        self.tuning = tuning
        self._personal = frozenset(caseless(name) for name in personal)
        self._spark = spark
        self._cores = spark.sparkContext.defaultParallelism
        self._table = delta_table.Table(spark, path, tuning)
        self.path = path

    def exists(self) -> bool:
        return self._table.exists()

    def size(self) -> int:
        return self._table.size()

    def is_empty(self) -> bool:
        """Returns True if the table has no file, not even one whose rows are all deleted."""
        return not self._table.files()

    def rows(self, as_of: str | None = None) -> DataFrame:
        """Returns the live rows, or those as of a version of the table or a time (ISO 8601)."""
        if as_of is None:
            return self._table.rows()
        if as_of.isdigit():
            return self._table.rows_at(int(as_of))
        return self._spark.read.format("delta").option("timestampAsOf", as_of).load(self.path)

    def schema(self, table_schema: TableSchema) -> T.StructType:
        """Returns the table's columns with their logical types, then the system columns."""
        return self._rows_of(table_schema).schema

    def _properties(self, table_schema: TableSchema) -> dict[str, str]:
        return silver_properties(table_schema, self._personal)

    def disable_personal_statistics(self, table_schema: TableSchema) -> None:
        """Stops collecting statistics of personal columns in a table that is older than their declaration."""
        wanted = self._properties(table_schema)[STATISTICS]
        if (
            self._personal & {caseless(k) for k in table_schema.key}
            and self.exists()
            and self._table.property(STATISTICS) != wanted
        ):
            self._table.set_property(STATISTICS, wanted)

    def create(self, table_schema: TableSchema) -> None:
        """Creates the table, empty. Does nothing if it exists."""
        if not self.exists():
            self._table.create(self.schema(table_schema), self._properties(table_schema))
            if table_schema.revision:
                self._table.commit(None, more_versions=_revision_of(table_schema))

    def revision(self) -> int:
        """Returns the revision of the catalog's entry whose columns and values the rows have; 0 if an older version of
        this package wrote the table."""
        return self._table.txn_version(_REVISION)

    def evolve(self, before: TableSchema, after: TableSchema, altered: Sequence[ColumnRevision] = ()) -> None:
        """Brings the rows to the columns, types and revision of `after` in one commit (`column_changes.evolve_table`).
        `altered`: the revisions of columns whose stored values change."""
        evolve_table(self._table, self._rows_of(after), before, altered, self._properties(after), _revision_of(after))

    def finish_columns(self) -> None:
        """Ends a change of columns that a run has left between its two commits."""
        self._table.finish_columns()

    def rekey(self, rows: DataFrame, after: TableSchema, changed: bool) -> None:
        """Replaces all rows by `rows`, sorted by the key of `after`, in one commit that brings the table to its
        revision. `changed`: the change data feed gets an entry for each row; otherwise none."""
        frame = self._rows_of(after).laid_out(rows, max(1, compaction.file_count(list(self._table.files().values()))))
        versions = _revision_of(after) if self.revision() < after.revision else ()
        self._table.convert(frame, self.schema(after), {}, changed, self._properties(after), versions)

    def remove_located(self, rows: DataFrame, user_metadata: Mapping[str, Any]) -> None:
        """Deletes rows by their `LOCATION`, in one commit."""
        self._commit(None, user_metadata, deleted_rows=rows.select(LOCATION))

    def matching(self, states: DataFrame, key: Sequence[str]) -> DataFrame:
        """Returns the rows whose key is in `states`, with their `LOCATION`. The table must exist."""
        found, are_few = page_index.matching(self._table, key, states, located=True)
        return F.broadcast(found) if are_few else found

    def near(self, states: DataFrame, key: Sequence[str], query: Query, by: tuple[Hashable, ...]) -> DataFrame:
        """Returns `query(*by, rows)` of rows with their `LOCATION`, among them all whose key is in `states`, which are
        few. The query must work row by row. The table must exist."""
        return page_index.near(self._table, key, states, query, by, located=True)

    def matching_with(
        self, states: DataFrame, key: list[str], names: list[str], files: set[str], are_few: bool
    ) -> DataFrame:
        """Returns the rows whose key is in `states`, with the states' columns `names`. `files`: names of the files that
        hold them. `are_few`: there are at most `page_lookup_keys` states."""
        return page_index.matching(
            self._table, key, states, with_columns=names, are_few=are_few, files=self._table.files_named(files)
        )[0]

    def rows_with_column_versions(self) -> DataFrame:
        """Returns the rows with a column older than the row, with their `LOCATION`."""
        return self.located().where(F.col(COLUMN_POSITIONS).isNotNull())

    def located(self) -> DataFrame:
        """Returns all rows, with their `LOCATION`."""
        return located(self._table.rows_in(self._table.files().values()))

    def located_before(self, version: int) -> DataFrame | None:
        """Returns all rows before the commit `version`, with their `LOCATION`; None if it created the table."""
        rows = self._table.rows_before(version)
        return None if rows is None else located(rows)

    def pin_snapshot(self, application: str) -> bool:
        """Pins the snapshot that the next `apply` is based on: it fails if another writer has committed a batch since.
        Returns True if another writer has committed anything since this one did."""
        return self._table.pin_snapshot(application)

    def require_pinned_snapshot(self) -> None:
        """Raises Contended if another writer has committed a batch since `pin_snapshot`."""
        self._table.require_pinned_snapshot()

    def take_lease(self, application: str, seconds: float) -> None:
        """Has other writers wait for the next batch of `application`, at most for `seconds`."""
        self._table.take_lease(application, seconds)

    def has(self, table_schema: TableSchema) -> bool:
        """Returns True if the table has the columns of `table_schema` and no others."""
        stored = {f.name: f.dataType for f in self.rows().schema}
        return stored == {f.name: f.dataType for f in self.schema(table_schema)}

    def txn_version(self, application: str) -> int:
        """Returns the `TxnVersion` of an application in this table."""
        return self._table.txn_version(application)

    def commits(self) -> Iterator[CommitSummary]:
        """Yields the commits with user metadata, newest first."""
        return self._table.commits()

    def version_at(self, writer: str, through_batch: int) -> int:
        """Returns the newest version without anything of a writer's slices after the batch `through_batch`."""
        version = self._table.version()
        for commit in self.commits():
            if commit.user_metadata.get(WRITER) == writer:
                if commit.user_metadata[THROUGH_BATCH] <= through_batch:
                    break
                version = commit.version - 1
        return version

    def apply(self, changes: RowChanges, table_schema: TableSchema, user_metadata: Mapping[str, Any]) -> None:
        """Writes changes in one commit. `user_metadata`: of the commit; by `WRITER` and `THROUGH_BATCH` it sets the
        writer's `TxnVersion` too.

        Raises Contended or Delta's conflict errors if another writer has committed a batch since `pin_snapshot`."""
        if not self.exists() and MAPPING in self._properties(table_schema):
            self.create(table_schema)  # Delta refuses a first write with both column mapping and a change data feed.
        is_small = changes.is_small
        if not changes.files:
            self._commit(
                self._new_rows(changes, table_schema),
                user_metadata,
                more_versions=() if self.exists() else _revision_of(table_schema),
                properties=self._properties(table_schema),
                is_small=is_small,
            )
            return
        rewritten = self._table.files_named(changes.files)
        if not changes.by_location and sum(f.size for f in rewritten) <= self.tuning.rewritable_bytes:
            old = self._table.run_prepared(rewritten, _unchanged) if is_small else self._table.rows_in(rewritten)
            frame = run_prepared(
                SilverRows.rewritten, (self._rows_of(table_schema), is_small), changes.states, old, is_small=is_small
            )
            self._commit(frame, user_metadata, removed_files=rewritten, is_small=is_small)
            return
        new = self._new_rows(changes, table_schema) if changes.actions & {INSERT, UPDATE} else None
        deleted = changes.deleted_rows
        self._commit(new, user_metadata, deleted_rows=deleted, is_small=is_small)

    def _commit(self, frame: DataFrame | None, user_metadata: Mapping[str, Any], **more: Any) -> None:
        txn_version = None
        if WRITER in user_metadata:
            txn_version = TxnVersion(user_metadata[WRITER], user_metadata[THROUGH_BATCH], must_advance=False)
        self._table.commit(frame, user_metadata=user_metadata, txn_version=txn_version, **more)

    def replace(self, other: Silver, table_schema: TableSchema, user_metadata: Mapping[str, Any]) -> None:
        """Replaces all rows by those of `other`, with the columns of `table_schema`, in one commit. Older versions stay
        readable. Raises Contended as `apply` does."""
        if not self.exists():
            self.create(table_schema)
        frame = other._compacted(list(other._table.files().values()), table_schema) if other.exists() else None
        removed = [*self._table.files().values()]
        properties, columns = self._properties(table_schema), self.schema(table_schema)
        self._commit(frame, user_metadata, removed_files=removed, properties=properties, columns=columns)

    def compact(self, table_schema: TableSchema) -> bool:
        """Compacts small files if that is due; the rows stay what they are. Returns True if it was due."""
        return compact(
            self._table,
            compaction.files_due(self._table.files().values()),
            lambda due: self._compacted(due, table_schema),
        )

    def purge(self, table_schema: TableSchema) -> int:
        """Rewrites the files that have deletion vectors, without the deleted rows. Returns their number."""

        def rewrite() -> int:
            files = [f for f in self._table.files().values() if f.deleted_rows]
            if files:
                self._table.rewrite(files, self._compacted(files, table_schema))
            return len(files)

        written: int = retry_on_conflict()(rewrite)
        return written

    def _compacted(self, files: Sequence[DataFile], table_schema: TableSchema) -> DataFrame:
        """Returns the live rows of `files`, laid out for compacted files."""
        return self._rows_of(table_schema).laid_out(self._table.rows_in(files), compaction.file_count(files))

    def remove(self, states: DataFrame, table_schema: TableSchema, user_metadata: Mapping[str, Any]) -> int:
        """Deletes the rows of `states`, wherever they lie by now, in one commit. Returns their number."""
        key = [*table_schema.identity, *self.version_columns]
        stored = self.matching(states, table_schema.identity).select(*map(quoted, key), LOCATION)
        deleted = checkpoint(joined_by_key(states.drop(LOCATION), F.broadcast(stored), key))
        by_file = deleted.groupBy(F.col(LOCATION)["file"].alias("file")).agg(F.count(F.lit(1)).alias("rows"))
        files = by_file.collect()  # a row per file
        rows: int = sum(f["rows"] for f in files)
        changes = RowChanges(deleted, frozenset({DELETE}), frozenset(f["file"] for f in files), rows)
        self.apply(changes, table_schema, user_metadata)
        return rows

    def _new_rows(self, changes: RowChanges, table_schema: TableSchema) -> DataFrame:
        # Changes that replace no row fill a table: there it pays to split rows by ranges, so that one file has a key.
        files = new_file_count(changes.rows, self._cores, self.tuning)
        parts = changes.parts if changes.files else None
        by = self._rows_of(table_schema), files, parts
        return run_prepared(SilverRows.new_rows, by, changes.states, is_small=changes.is_small)

    def _rows_of(self, table_schema: TableSchema) -> SilverRows:
        return SilverRows(table_schema, self.system_columns, self.version_columns)

    def commit_without_rows(self, user_metadata: Mapping[str, Any]) -> None:
        """Commits the user metadata of a batch that changes no row."""
        self._commit(None, user_metadata)

    def truncate(self, before: Column) -> None:
        """Deletes every row whose position is below `before`, a `POSITION` struct."""
        is_gone = F.col(POSITION_COLUMN) < before
        if not self._table.rows().where(is_gone).isEmpty():  # Delta's own command takes many times as long.
            self._table.delete(is_gone)


def _revision_of(table_schema: TableSchema) -> tuple[TxnVersion, ...]:
    return (TxnVersion(_REVISION, table_schema.revision),) if table_schema.revision else ()


def _unchanged(rows: DataFrame) -> DataFrame:
    return rows
