"""Silver: one Delta table per source table, its live rows and nothing else, for any Delta reader."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.change import COLUMN_POSITIONS, COLUMN_POSITIONS_TYPE, POSITION_COLUMN, SOURCE_TS, quoted
from ingest.changelog.position import POSITION
from ingest.changelog.spelling import caseless
from ingest.changelog.values.conversion import converted
from ingest.changelog.values.types import spark_type
from ingest.delta import compaction, delta_table
from ingest.delta.commit_log import THROUGH_BATCH, WRITER, CommitSummary
from ingest.delta.compaction import compact
from ingest.delta.conflict_retry import retry_on_conflict
from ingest.delta.data_file import DataFile
from ingest.delta.file_index import located
from ingest.delta.txn_versions import TxnVersion
from ingest.internal_columns import LOCATION
from ingest.lakehouse import page_index
from ingest.lakehouse.file_layout import new_file_count
from ingest.lakehouse.row_changes import RowChanges
from ingest.lakehouse.silver_rows import SilverRows
from ingest.lakehouse.table_features import MAPPING, features
from ingest.merge.actions import DELETE, INSERT, UPDATE
from ingest.merge.image_columns import default_value
from ingest.merge.key_join import joined_by_key
from ingest.merge.table_schema import TableSchema
from ingest.names import identifier
from ingest.spark.checkpoints import checkpoint
from ingest.spark.prepared import Query, asked

_PROPERTIES = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"}
_UNSORTED = (T.BooleanType, T.BinaryType, T.ArrayType, T.MapType, T.StructType)
"""Types of which Delta keeps no statistics, and refuses to be asked for them."""
_REWRITABLE = 1 << 20
"""Bytes of files that a commit may write anew: so small a table stays one file. Of more, rows are marked as gone."""


class Silver:
    """The silver table of one source table."""

    system_columns: ClassVar[T.StructType] = T.StructType(
        [
            T.StructField(POSITION_COLUMN, POSITION),
            T.StructField(SOURCE_TS, T.TimestampType()),
            T.StructField(COLUMN_POSITIONS, COLUMN_POSITIONS_TYPE),
        ]
    )
    """What a row holds beside the table's columns."""
    version_columns: ClassVar[tuple[str, ...]] = ()
    """Which of these tell rows of one key apart."""

    def __init__(self, spark: SparkSession, path: str, personal: frozenset[str] = frozenset()) -> None:
        """`personal`: columns of which nothing is written into the log."""
        self._personal = {caseless(name) for name in personal}
        self._spark = spark
        self._cores = spark.sparkContext.defaultParallelism
        self._table = delta_table.Table(spark, path)
        self.path = path

    def exists(self) -> bool:
        return self._table.exists()

    def size(self) -> int:
        return self._table.size()

    def is_empty(self) -> bool:
        """Whether there is no file, not even of rows that have gone."""
        return not self._table.files()

    def rows(self, as_of: str | None = None) -> DataFrame:
        """The live rows; with `as_of`, those of a version of the table or of a time (ISO 8601)."""
        if as_of is None:
            return self._table.rows()
        if as_of.isdigit():
            return self._table.rows_at(int(as_of))
        return self._spark.read.format("delta").option("timestampAsOf", as_of).load(self.path)

    def schema(self, table_schema: TableSchema) -> T.StructType:
        """The columns by their logical types, then the few that begin with `_`."""
        return self._rows_of(table_schema).schema

    def _properties(self, table_schema: TableSchema) -> dict[str, str]:
        # What readers skip files by: the key, and nothing else of a row gets into the log. A personal key doesn't
        # either: readers then open every file, and within it skip by what Parquet tells, which goes with the file.
        types = {c.name: spark_type(c.type) for c in table_schema.columns}
        told = (k for k in table_schema.key if caseless(k) not in self._personal)
        keys = [identifier(k) for k in told if not isinstance(types[k], _UNSORTED)]
        statistics = ",".join(keys) or f"{POSITION_COLUMN}.major"
        return {**_PROPERTIES, "delta.dataSkippingStatsColumns": statistics, **features(types)}

    def disable_personal_statistics(self, table_schema: TableSchema) -> None:
        """A table that is older than what was said of its personal columns writes nothing of them from here on."""
        told = "delta.dataSkippingStatsColumns"
        wanted = self._properties(table_schema)[told]
        if (
            self._personal & {caseless(k) for k in table_schema.key}
            and self.exists()
            and self._table.property(told) != wanted
        ):
            self._table.set_property(told, wanted)

    def create(self, table_schema: TableSchema) -> None:
        """An empty table; one that is there already stays as it is."""
        self._table.create(self.schema(table_schema), self._properties(table_schema))

    def evolve(self, before: TableSchema, after: TableSchema) -> None:
        """Adds columns by a commit of metadata. Rewrites the files where a column gets a wider type (no row is in the
        change data feed) or where a new column is filled with a default (every row is)."""
        old = {c.name: c for c in before.columns}
        filled = any(c.filled is not None for c in after.columns if c.name not in old)
        kinds = {c.name: spark_type(c.type) for c in after.columns if c.name in old}
        widened = {name: kind for name, kind in kinds.items() if kind != spark_type(old[name].type)}
        properties, columns = self._properties(after), self.schema(after)
        if MAPPING in properties and not self._table.is_mapped():
            # A commit of its own: the names of the columns that are there become those of their files.
            self._table.set_property(MAPPING, properties[MAPPING])
        if not (filled or widened):
            self._table.commit(None, properties=properties, columns=columns)
            return
        files = list(self._table.files().values())
        rows = _with_defaults(_converted(self._table.rows_in(files), before, after), after)
        frame = self._rows_of(after).laid_out(rows, compaction.file_count(files))
        types = {name: kind.simpleString() for name, kind in widened.items()}
        self._table.convert(frame, columns, types, changed=filled, new=properties)

    def matching(self, states: DataFrame, key: Sequence[str]) -> DataFrame:
        """The rows whose key is in `states`, with their `LOCATION`. The table must be there."""
        found, few = page_index.matching(self._table, key, states, located=True)
        return F.broadcast(found) if few else found

    def near(self, states: DataFrame, key: Sequence[str], query: Query, by: tuple[Hashable, ...]) -> DataFrame:
        """`query(*by, rows)` of rows with their `LOCATION`, each asked for itself: among them all whose key is in
        `states`, of which there are few. The table must be there."""
        return page_index.near(self._table, key, states, query, by, located=True)

    def matching_with(
        self, states: DataFrame, key: list[str], names: list[str], files: set[str], few: bool
    ) -> DataFrame:
        """The rows whose key is in `states`, with their columns `names`; they lie in `files`. `few`: there are no
        more than `FEW_KEYS` states."""
        return page_index.matching(
            self._table, key, states, named=names, few=few, files=self._table.files_named(files)
        )[0]

    def rows_with_column_versions(self) -> DataFrame:
        """The rows of which some column is older than the row, with their `LOCATION`."""
        return self.located().where(F.col(COLUMN_POSITIONS).isNotNull())

    def located(self) -> DataFrame:
        """All rows, with their `LOCATION`."""
        return located(self._table.rows_in(self._table.files().values()))

    def located_before(self, version: int) -> DataFrame | None:
        """All rows as they were before the commit `version`, with their `LOCATION`; None where it made the table."""
        rows = self._table.rows_before(version)
        return None if rows is None else located(rows)

    def pin_snapshot(self, application: str) -> bool:
        """What is read from here on is what the next batch builds on: to apply it fails where another writer's batch
        has come in between. Whether anybody else has written since this one did."""
        return self._table.pin_snapshot(application)

    def require_pinned_snapshot(self) -> None:
        """Raises Contended where another writer's batch has come since `begin`."""
        self._table.require_pinned_snapshot()

    def take_lease(self, application: str, seconds: float) -> None:
        """Other writers let the next batch of `application` go first, for so long at most."""
        self._table.take_lease(application, seconds)

    def has(self, table_schema: TableSchema) -> bool:
        """Whether the table has the columns of `table_schema` and no others."""
        there = {f.name: f.dataType for f in self.rows().schema}
        return there == {f.name: f.dataType for f in self.schema(table_schema)}

    def txn_version(self, application: str) -> int:
        """The `Progress` of an application in this table."""
        return self._table.txn_version(application)

    def commits(self) -> Iterator[CommitSummary]:
        """What batches that were applied here say of themselves, the newest first."""
        return self._table.commits()

    def version_at(self, writer: str, upto: int) -> int:
        """The newest version that holds nothing of a writer's slices after the batch `upto`."""
        version = self._table.version()
        for told in self.commits():
            if told.user_metadata.get(WRITER) == writer:
                if told.user_metadata[THROUGH_BATCH] <= upto:
                    break
                version = told.version - 1
        return version

    def apply(
        self,
        writes: RowChanges,
        table_schema: TableSchema,
        told: Mapping[str, Any],
        after: Callable[[], object] | None = None,
    ) -> None:
        """`told`: what the commit says of itself; by `WRITER` and `UPTO` also how far it takes its writer. One commit.
        `after`: what has to be done before it, once its files are written.

        Raises Contended, or what Delta raises, where another writer's batch came between `begin` and here."""
        if not self.exists() and MAPPING in self._properties(table_schema):
            self.create(table_schema)  # Delta refuses a first write that brings both mapping and a change data feed.
        touched, few = writes.files, writes.is_small
        if not touched:
            self._commit(
                self._come(writes, table_schema),
                told,
                properties=self._properties(table_schema),
                before_commit=after,
                is_small=few,
            )
            return
        rewritten = self._table.files_named(touched)
        if sum(f.size for f in rewritten) <= _REWRITABLE:
            old = self._table.run_prepared(rewritten, _whole) if few else self._table.rows_in(rewritten)
            frame = asked(SilverRows.rewritten, (self._rows_of(table_schema), few), writes.states, old, few=few)
            self._commit(frame, told, removed_files=rewritten, before_commit=after, is_small=few)
            return
        come = self._come(writes, table_schema) if writes.actions & {INSERT, UPDATE} else None
        self._commit(come, told, deleted_rows=writes.deleted_rows, before_commit=after, is_small=few)

    def _commit(self, frame: DataFrame | None, told: Mapping[str, Any], **more: Any) -> None:
        progress = TxnVersion(told[WRITER], told[THROUGH_BATCH], must_advance=False) if WRITER in told else None
        self._table.commit(frame, user_metadata=told, txn_version=progress, **more)

    def replace(self, anew: Silver, table_schema: TableSchema, told: Mapping[str, Any]) -> None:
        """In one commit all rows go and those of `anew` come, with the columns of `table_schema`. Older versions stay
        what they are. Raises Contended as `apply` does."""
        if not self.exists():
            self.create(table_schema)
        frame = anew._together(list(anew._table.files().values()), table_schema) if anew.exists() else None
        gone = [*self._table.files().values()]
        properties, columns = self._properties(table_schema), self.schema(table_schema)
        self._commit(frame, told, removed_files=gone, properties=properties, columns=columns)

    def compact(self, table_schema: TableSchema) -> bool:
        """Writes small files together, where it is time to: the rows stay what they are. Whether it was."""
        return compact(
            self._table,
            compaction.files_due(self._table.files().values()),
            lambda due: self._together(due, table_schema),
        )

    def purge(self, table_schema: TableSchema) -> int:
        """Writes anew the files of which rows are marked as gone, without them. How many there were."""

        def anew() -> int:
            files = [f for f in self._table.files().values() if f.deleted_rows]
            if files:
                self._table.rewrite(files, self._together(files, table_schema))
            return len(files)

        written: int = retry_on_conflict()(anew)
        return written

    def _together(self, files: Sequence[DataFile], table_schema: TableSchema) -> DataFrame:
        """What is left in these files."""
        return self._rows_of(table_schema).laid_out(self._table.rows_in(files), compaction.file_count(files))

    def remove(self, states: DataFrame, table_schema: TableSchema, told: Mapping[str, Any]) -> int:
        """Takes away the rows of `states`, wherever they lie by now. One commit. How many there were."""
        key = [*table_schema.identity, *self.version_columns]
        there = self.matching(states, table_schema.identity).select(*map(quoted, key), LOCATION)
        over = checkpoint(joined_by_key(states.drop(LOCATION), F.broadcast(there), key))
        by_file = over.groupBy(F.col(LOCATION)["file"].alias("file")).agg(F.count(F.lit(1)).alias("rows"))
        files = by_file.collect()  # a row per file
        gone = RowChanges(over, frozenset({DELETE}), frozenset(f["file"] for f in files), sum(f["rows"] for f in files))
        self.apply(gone, table_schema, told)
        return gone.rows

    def _come(self, writes: RowChanges, table_schema: TableSchema) -> DataFrame:
        """The rows that come."""
        # New rows alone fill a table: there it pays to share them out by ranges, for a key is then sought in one file.
        files, parts = new_file_count(writes.rows, self._cores), writes.parts if writes.files else None
        by, few = (self._rows_of(table_schema), files, parts), writes.is_small
        return asked(SilverRows.new_rows, by, writes.states, few=few)

    def _rows_of(self, table_schema: TableSchema) -> SilverRows:
        return SilverRows(table_schema, self.system_columns, self.version_columns)

    def commit_without_rows(self, told: Mapping[str, Any]) -> None:
        """A commit that changes nothing, and says so: what a batch without effect has to tell."""
        self._commit(None, told)

    def truncate(self, before: Column) -> None:
        """Removes every row whose position is below `before`, a `POSITION` struct."""
        self._table.delete(F.col(POSITION_COLUMN) < before)


def _converted(rows: DataFrame, before: TableSchema, after: TableSchema) -> DataFrame:
    """Rows with the values of changed columns as values of their new type."""
    old, stored = {c.name: c.type for c in before.columns}, {f.name: f.dataType for f in rows.schema}
    # Where a run died after this, the stored type is the new one already.
    changed = [c for c in after.columns if c.name in old and stored.get(c.name) == spark_type(old[c.name])]
    return rows.withColumns({c.name: converted(quoted(c.name), old[c.name], c.type) for c in changed})


def _with_defaults(rows: DataFrame, table_schema: TableSchema) -> DataFrame:
    """Rows with all columns of `table_schema`: one that they lack holds its default, or null."""
    present = set(rows.columns)
    return rows.withColumns({c.name: default_value(c) for c in table_schema.columns if c.name not in present})


def _whole(rows: DataFrame) -> DataFrame:
    return rows
