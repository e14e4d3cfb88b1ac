"""Commits to one Delta table, through Delta's own transactions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import types as T

from ingest.delta import commit_log, mapped_columns, small_rows, txn_versions
from ingest.delta.classes import Operation, as_list
from ingest.delta.commit_lock import commit_lock
from ingest.delta.conflict_retry import concurrent_commit
from ingest.delta.data_file import DataFile, ReadyFile, data_file
from ingest.delta.deletion_vectors import DeletedRows, write_vectors
from ingest.delta.read_table import MAPPING, ReadTable
from ingest.delta.txn_versions import TxnVersion
from ingest.names import identifier
from ingest.tuning import DEFAULT_TUNING, Tuning

CHECKPOINTS = {"delta.checkpointInterval": "100"}
"""Property of every table: Delta writes a checkpoint of the log within each hundredth commit. At its default of 10 a
small batch takes twice as long on average; a reader opens a hundred files at once."""
NO_STATISTICS = {"delta.dataSkippingNumIndexedCols": "0"}

_BATCHES = "batches"
"""The application whose version counts the batches that all writers together have committed to the table."""

CHANGE_TYPE = "_change_type"
"""A row that has a value in this column goes into the change data feed alone, as in Delta's own writers."""


class Table(ReadTable):
    """The Delta table at `path`, which need not exist yet, for reading and writing."""

    def __init__(self, spark: SparkSession, path: str, tuning: Tuning = DEFAULT_TUNING) -> None:
        super().__init__(spark, path, tuning)
        self._last_seen = -1
        """The version that this writer has committed or pinned last; -1 if it doesn't know of every commit before
        it."""
        self._pinned: int | None = None
        """The version of `_BATCHES` in the pinned snapshot; None if none is pinned."""
        self._has_lease = False

    def create(self, schema: T.StructType, properties: Mapping[str, str]) -> None:
        """Creates the table, empty. Does nothing if it exists."""
        builder: Any = DeltaTable.createIfNotExists(self._spark).location(self.path).addColumns(schema)
        for key, value in (CHECKPOINTS | dict(properties)).items():
            builder = builder.property(key, value)
        with commit_lock(self.path):
            builder.execute()

    def pin_snapshot(self, application: str) -> bool:
        """Pins the snapshot that the next `commit` is based on: that commit fails if another writer has committed a
        batch since. The table need not exist. Waits for leases of other applications. Returns True if another writer
        has committed anything since this one did."""
        snapshot = self._snapshot()
        others = int(snapshot.version()) != self._last_seen
        if others or self._pinned is None:
            snapshot = txn_versions.await_leases(self._snapshot, self._txn_versions_of, application)
            self._pinned = self._txn_versions_of(snapshot).get(_BATCHES, 0)
            self._last_seen = int(snapshot.version())
        return others

    def is_unchanged(self) -> bool:
        """Returns True if no other writer has committed since this one did."""
        return self.version() == self._last_seen

    def require_pinned_snapshot(self) -> None:
        """Raises Contended if another writer has committed a batch since `pin_snapshot`."""
        if self._pinned is not None and self._txn_versions_of(self._newest_snapshot()).get(_BATCHES, 0) != self._pinned:
            raise concurrent_commit(self.path)

    def take_lease(self, application: str, seconds: float) -> None:
        """Has other writers wait in `pin_snapshot` until the next commit of the application, at most for `seconds`."""
        transaction = self._log.startTransaction(self._delta.none, self._delta.some(self._snapshot()))
        lease = TxnVersion(txn_versions.lease_of(application), txn_versions.lease_end(seconds))
        self._commit_actions(transaction, [], [], [], None, [lease])
        self._has_lease = True

    def commits(self, most: int | None = None) -> Iterator[commit_log.CommitSummary]:
        """Yields the commits with user metadata, newest first, to the beginning of the log or among the newest `most`
        commits."""
        return commit_log.commits(self._delta, self._log, int(self._snapshot().version()), most)

    def set_property(self, name: str, value: str) -> None:
        """Sets a property of a table that exists."""
        self.set_properties({name: value})

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Sets properties of a table that exists, in one commit."""

        def literal(text: str) -> str:
            # SQL has no parameter markers for the names and values of properties.
            return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

        pairs = ", ".join(f"{literal(name)} = {literal(value)}" for name, value in properties.items())
        with commit_lock(self.path):
            self._spark.sql(f"ALTER TABLE delta.{identifier(self.path)} SET TBLPROPERTIES ({pairs})")

    def shorten_log(self, hours: int | None) -> None:
        """Deletes the part of the log that only versions older than `hours`, or than the table's own retention,
        need."""
        since = self._delta.none if hours is None else self._delta.some_long(hours * 3_600_000)
        granularity = self._delta.minute_granularity
        self._log.cleanUpExpiredLogs(self._newest_snapshot(), self._delta.none, since, granularity)

    def delete(self, condition: Column) -> None:
        """Deletes the rows that meet `condition` from a table that exists."""
        with commit_lock(self.path):
            DeltaTable.forPath(self._spark, self.path).delete(condition)

    def commit(
        self,
        frame: DataFrame | None,
        removed_files: Sequence[DataFile] = (),
        deleted_rows: DeletedRows | None = None,
        user_metadata: Mapping[str, Any] | None = None,
        txn_version: TxnVersion | None = None,
        properties: Mapping[str, str] = MappingProxyType({}),
        columns: T.StructType | None = None,
        ready: Sequence[ReadyFile] = (),
        is_small: bool = False,
        more_versions: Sequence[TxnVersion] = (),
    ) -> list[DataFile]:
        """Makes one commit, the first of which creates the table. Returns the new files.

        `frame`: rows to add, with the table's columns and types and, optionally, `CHANGE_TYPE`. `removed_files`,
        `deleted_rows`: files and rows to remove. `user_metadata`: of the commit. `txn_version`: of the writer.
        `properties`: of a new table, or set together with `columns`. `columns`: the table's new columns. `ready`: files
        to add that are written already. `is_small`: `frame` has few rows. `more_versions`: of other applications.
        Rows and columns together take two commits if `finish_columns` has to follow.

        Raises Contended if another writer has reached one of the versions, or has committed a batch since
        `pin_snapshot`, and Delta's conflict errors if that happens during the commit."""
        if columns is not None:
            self._prepare_columns(properties)
        transaction = self._transaction(removed_files)
        version = int(transaction.snapshot().version())
        if frame is not None and version < 0:
            new_properties = CHECKPOINTS | dict(properties)
            transaction.updateMetadata(self._delta.metadata(frame, new_properties), False)
        elif columns is not None:
            frame = self._set_columns(transaction, columns, properties, frame, bool(removed_files))
        versions = self._checked_txn_versions(transaction, txn_version, more_versions)
        pairs, emptied = list[Any](), list[DataFile]()
        if deleted_rows is not None:
            pairs, emptied = write_vectors(self._spark, self._log, self.path, self.files(), deleted_rows)
        added = self._written(transaction, frame, is_small)
        added += [self._delta.add_file(file) for file in ready]
        removed_files = [*removed_files, *emptied]
        removed = [f.action.remove() for f in removed_files]
        marked = [action for pair in pairs for action in (pair._1(), pair._2())]
        new = [data_file(a) for a in added if a.getClass().getSimpleName() == "AddFile"]
        live = [*new, *(data_file(pair._1()) for pair in pairs)]
        actions = [*added, *removed, *marked]
        self._commit_actions(transaction, live, removed_files, actions, user_metadata, versions)
        self._note_batch()
        self._has_lease = False
        if columns is not None and actions:
            self.finish_columns()
        return new

    def _prepare_columns(self, properties: Mapping[str, str]) -> None:
        """Brings the table to where its columns can be set: ends an earlier change, and enables column mapping if
        `properties` say so, in a commit of its own, so that existing columns keep their names in the files."""
        if self.is_mapped():
            self.finish_columns()
        elif MAPPING in properties and self.exists():
            self.set_property(MAPPING, properties[MAPPING])

    def _set_columns(
        self,
        transaction: Any,
        columns: T.StructType,
        properties: Mapping[str, str],
        frame: DataFrame | None,
        has_files: bool,
    ) -> DataFrame | None:
        """Sets the table's columns and `properties` with a transaction. Returns `frame` with the columns' names in it.
        `has_files`: the transaction removes files."""
        metadata = transaction.snapshot().metadata()
        wanted, before = columns.jsonValue(), json.loads(metadata.schemaString())
        if not self.is_mapped() or (frame is None and not has_files):
            found = mapped_columns.with_column_ids(wanted, before)
        else:
            found = mapped_columns.beside_former(wanted, before)
            names = mapped_columns.provisional_names(wanted, before)
            frame = frame.withColumnsRenamed(dict(names)) if names and frame is not None else frame
        transaction.updateMetadata(self._delta.with_columns(metadata, found, properties), False)
        return frame

    def finish_columns(self) -> None:
        """Drops the columns of a mapped table that a commit with files has left beside its own, and gives these their
        final names, in one commit. Does nothing if there are none."""
        if not self.is_mapped():
            return
        transaction = self._transaction([])
        metadata = transaction.snapshot().metadata()
        columns = mapped_columns.final_columns(json.loads(metadata.schemaString()))
        if columns is not None:
            transaction.updateMetadata(self._delta.with_columns(metadata, columns, {}), False)
            versions = self._checked_txn_versions(transaction, None, [])
            self._commit_actions(transaction, [], [], [], versions=versions)
            self._note_batch()

    def _note_batch(self) -> None:
        self._pinned = None if self._pinned is None else self._pinned + 1

    def _transaction(self, removed: Sequence[DataFile]) -> Any:
        """Returns a transaction that reads, and may remove, the files `removed`. It conflicts with every later commit
        that removes one of them. Raises Contended if an earlier commit has."""
        snapshot = self._snapshot()
        if removed:
            live = self._log_cache(snapshot).files(snapshot)
            if any(f.name not in live or live[f.name].vector_id != f.vector_id for f in removed):
                raise concurrent_commit(self.path)
        transaction = self._log.startTransaction(self._delta.none, self._delta.some(snapshot))
        transaction.trackFilesRead(self._delta.sequence([f.action for f in removed]))
        return transaction

    def _commit_actions(
        self,
        transaction: Any,
        added: Sequence[DataFile],
        removed: Sequence[DataFile],
        actions: Sequence[Any],
        user_metadata: Mapping[str, Any] | None = None,
        versions: Sequence[TxnVersion] = (),
        operation: Operation = Operation.WRITE,
    ) -> None:
        """Commits `actions`, which add and remove these files, together with `versions`."""
        before = int(transaction.snapshot().version())
        txns = [self._delta.set_transaction(v.application, v.version) for v in versions]
        with commit_lock(self.path):
            every, committing = self._delta.sequence([*txns, *actions]), self._delta.operation(operation, user_metadata)
            if operation is Operation.DELETE:
                self._delta.register_metrics(transaction)
            after = int(transaction.commit(every, committing, self._delta.empty_map))
        if after == before + 1:
            newest = self._log.unsafeVolatileSnapshot()
            self._log_cache(newest).committed(after, added, removed, versions)
        # Otherwise another writer's commit lies in between, of which nothing is known.
        self._last_seen = after if before == self._last_seen and after == before + 1 else -1

    def rewrite(self, files: Sequence[DataFile], frame: DataFrame, operation: Operation = Operation.OPTIMIZE) -> None:
        """Replaces `files` by new ones with their rows, as `frame` lays them out, in one commit without entries in the
        change data feed. `operation`: DELETE if `frame` lacks some of the rows, or what they held.

        Raises Contended or Delta's conflict errors if another writer removes one of the files."""
        transaction = self._transaction(files)
        removed = [self._delta.remove_without_data_change(f.action) for f in files]
        added = [self._delta.without_data_change(a) for a in self._written(transaction, frame)]
        self._commit_actions(transaction, [data_file(a) for a in added], files, [*added, *removed], operation=operation)

    def convert(
        self,
        frame: DataFrame,
        columns: T.StructType,
        types: Mapping[str, str],
        changed: bool,
        properties: Mapping[str, str],
        versions: Sequence[TxnVersion] = (),
    ) -> None:
        """Replaces all files by `frame`, which has their rows with the types of `columns`, in one commit, or in two if
        `finish_columns` has to follow. `types`:
        column → new type, for the commit's user metadata. `changed`: the change data feed gets an entry for each row;
        otherwise none. `properties`: to set. `versions`: of applications.

        Raises Contended or Delta's conflict errors as `commit` does, and if another writer removes a file.
        """
        self._prepare_columns(properties)
        files = list(self.files().values())
        transaction = self._transaction(files)
        named = self._set_columns(transaction, columns, properties, frame, bool(files))
        checked = self._checked_txn_versions(transaction, None, versions)
        added = self._written(transaction, named)
        if changed:
            removed = [f.action.remove() for f in files]
        else:
            added = [*map(self._delta.without_data_change, added)]
            removed = [self._delta.remove_without_data_change(file.action) for file in files]
        new = [data_file(a) for a in added]
        self._commit_actions(transaction, new, files, [*added, *removed], {"types": types}, checked)
        self._note_batch()
        self.finish_columns()

    @staticmethod
    def _written(transaction: Any, frame: DataFrame | None, is_small: bool = False) -> list[Any]:
        if frame is None:
            return []
        added = small_rows.write_small_rows(transaction, frame) if is_small else None
        return as_list(transaction.writeFiles(frame._jdf)) if added is None else added

    def _checked_txn_versions(
        self, transaction: Any, txn_version: TxnVersion | None, more: Sequence[TxnVersion]
    ) -> list[TxnVersion]:
        """Returns the versions to set with this commit: `txn_version`, the end of its lease, `more`, and the next batch
        of a pinned table. Raises Contended if another writer has come in between."""
        snapshot = transaction.snapshot()
        found = [*more] if txn_version is None else [txn_version, *more]
        # Also behind this writer's own commit, which may have been of another application.
        checked = [version for version in found if version.must_advance or version.after is not None]
        known = self._txn_versions_of(snapshot) if checked else {}
        for version in checked:
            reached = known.get(version.application, 0)
            is_reached = version.must_advance and reached >= version.version
            if is_reached or (version.after is not None and reached > version.after):
                raise concurrent_commit(self.path)
        if txn_version is not None and self._has_lease:
            found.append(TxnVersion(txn_versions.lease_of(txn_version.application), 0))
        if self._pinned is not None:
            others = int(snapshot.version()) != self._last_seen
            if others and self._txn_versions_of(snapshot).get(_BATCHES, 0) != self._pinned:
                raise concurrent_commit(self.path)
            found.append(TxnVersion(_BATCHES, self._pinned + 1))
        self._last_seen = int(snapshot.version())
        for version in found:
            # As if it had been read: the commit then conflicts with one that sets the same application meanwhile.
            transaction.readTxn().addOne(version.application)
        return found
