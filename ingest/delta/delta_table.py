"""Commits to one Delta table, through Delta's own transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import types as T

from ingest.delta import checkpoints, commit_log, small_rows, txn_versions
from ingest.delta.classes import items
from ingest.delta.commit_lock import commit_lock
from ingest.delta.conflict_retry import concurrent_commit
from ingest.delta.data_file import DataFile, ReadyFile, data_file
from ingest.delta.deletion_vectors import GoneRows, thinned
from ingest.delta.read_table import ReadTable
from ingest.delta.txn_versions import TxnVersion
from ingest.names import identifier
from ingest.spark.background import in_background

NO_STATISTICS = {"delta.dataSkippingNumIndexedCols": "0"}

_TURNS = "batches"
"""An application that every batch of every writer belongs to; its progress is how many there were."""

CHANGE_TYPE = "_change_type"
"""A row of a commit with this column set belongs to the change data feed alone, as Delta's own writers have it."""


class Table(ReadTable):
    """The Delta table at `path`, which may not be there yet, to be written to."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        super().__init__(spark, path)
        self._known = -1
        self._turn: int | None = None
        self._has_lease = False

    def create(self, schema: T.StructType, properties: Mapping[str, str]) -> None:
        """Makes it, empty; one that is there already stays as it is."""
        builder: Any = DeltaTable.createIfNotExists(self._spark).location(self.path).addColumns(schema)
        for key, value in (checkpoints.PROPERTIES | dict(properties)).items():
            builder = builder.property(key, value)
        with commit_lock(self.path):
            builder.execute()

    def pin_snapshot(self, application: str) -> bool:
        """What is read from here on, be it no table yet, is what the next commit builds on: it fails where the batch of
        another writer has come in between. Whether anybody else has written since this one did."""
        snapshot = self._snapshot()
        others = int(snapshot.version()) != self._known
        if others or self._turn is None:
            snapshot = txn_versions.await_leases(self._snapshot, self._txn_versions_of, application)
            self._turn = self._txn_versions_of(snapshot).get(_TURNS, 0)
            self._known = int(snapshot.version())
        return others

    def is_unchanged(self) -> bool:
        """Whether nobody else has written since this one did."""
        return self.version() == self._known

    def require_pinned_snapshot(self) -> None:
        """Raises Contended where another writer has committed a batch since `begin`."""
        if self._turn is not None and self._txn_versions_of(self._newest.now()).get(_TURNS, 0) != self._turn:
            raise concurrent_commit(self.path)

    def take_lease(self, application: str, seconds: float) -> None:
        """Other writers wait before they `begin`: until the next commit of the application, at most for so long."""
        transaction = self._log.startTransaction(self._delta.none, self._delta.some(self._snapshot()))
        claim = TxnVersion(txn_versions.lease_of(application), txn_versions.lease_end(seconds))
        self._committed(transaction, [], [], [], None, [claim])
        self._has_lease = True

    def commits(self, most: int | None = None) -> Iterator[commit_log.CommitSummary]:
        """Yields the commits that say something of themselves, the newest first, as far back as the log goes. `most`:
        among so many newest commits only."""
        return commit_log.commits(self._delta, self._log, int(self._snapshot().version()), most)

    def set_property(self, name: str, value: str) -> None:
        """Sets a property of a table that is there."""
        self.set_properties({name: value})

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Sets several, in one commit."""

        def text(said: str) -> str:
            # Markers can't stand for a property's name or value.
            return "'" + said.replace("\\", "\\\\").replace("'", "\\'") + "'"

        pairs = ", ".join(f"{text(name)} = {text(value)}" for name, value in properties.items())
        with commit_lock(self.path):
            self._spark.sql(f"ALTER TABLE delta.{identifier(self.path)} SET TBLPROPERTIES ({pairs})")

    def shorten_log(self, hours: int | None) -> None:
        """Deletes what is in the log from more than `hours` ago, or than the table says itself, but for what the
        versions since then are told by."""
        since = self._delta.none if hours is None else self._delta.some_long(hours * 3_600_000)
        self._log.cleanUpExpiredLogs(self._newest.now(), self._delta.none, since, self._delta.to_the_minute)

    def delete(self, condition: Column) -> None:
        """Takes away the rows of a table that is there for which `condition` holds."""
        with commit_lock(self.path):
            DeltaTable.forPath(self._spark, self.path).delete(condition)

    def commit(
        self,
        frame: DataFrame | None,
        without: Sequence[DataFile] = (),
        without_rows: GoneRows | None = None,
        told: Mapping[str, Any] | None = None,
        progress: TxnVersion | None = None,
        new: Mapping[str, str] = MappingProxyType({}),
        columns: T.StructType | None = None,
        ready: Sequence[ReadyFile] = (),
        after: Callable[[], object] | None = None,
        few: bool = False,
    ) -> list[DataFile]:
        """One commit, the first of which makes the table: the rows of `frame` come, in files that are returned, and the
        files `ready`; the files `without` go, and so do `without_rows`. `frame` has the table's columns and types, and
        may have `CHANGE_TYPE`. `told`: what the commit says of itself (its user metadata). `new`: properties of a new
        table. `columns`: those that the table has from here on, with the properties `new`. `after`: what has to be done
        before the commit, once its files are written. `few`: so are the rows of `frame`.

        Raises Contended where another writer has come as far as `progress`, or has committed a batch since `begin`,
        and what Delta raises where that happens at this very moment."""
        transaction = self._transaction(without)
        before = int(transaction.snapshot().version())
        if frame is not None and before < 0:
            transaction.updateMetadata(self._delta.metadata(frame, checkpoints.PROPERTIES | dict(new)), False)
        elif columns is not None:
            metadata = transaction.snapshot().metadata()
            transaction.updateMetadata(self._delta.with_columns(metadata, columns, new), False)
        progresses = self._progresses(transaction, progress)
        pairs, emptied = list[Any](), list[DataFile]()
        if without_rows is None:
            added = self._written(transaction, frame, few)
        else:
            with in_background(
                partial(thinned, self._spark, self._log, self.path, self.files(), without_rows)
            ) as marking:
                added = self._written(transaction, frame, few)
            pairs, emptied = marking.result()
        added += [self._delta.added(file) for file in ready]
        without = [*without, *emptied]
        removed = [f.action.remove() for f in without]
        marked = [action for pair in pairs for action in (pair._1(), pair._2())]
        come = [data_file(a) for a in added if a.getClass().getSimpleName() == "AddFile"]
        now = [*come, *(data_file(pair._1()) for pair in pairs)]
        if after is not None:
            after()
        self._committed(transaction, now, without, [*added, *removed, *marked], told, progresses)
        self._turn = None if self._turn is None else self._turn + 1
        self._has_lease = False
        return come

    def _transaction(self, gone: Sequence[DataFile]) -> Any:
        """One that takes away `gone`. Who else does so from now on collides with it; who did so before is seen here."""
        snapshot = self._snapshot()
        if gone:
            now = self._followed(snapshot).files(snapshot)
            if any(f.name not in now or now[f.name].vector != f.vector for f in gone):
                raise concurrent_commit(self.path)
        transaction = self._log.startTransaction(self._delta.none, self._delta.some(snapshot))
        transaction.trackFilesRead(self._delta.sequence([f.action for f in gone]))
        return transaction

    def _committed(
        self,
        transaction: Any,
        come: Sequence[DataFile],
        gone: Sequence[DataFile],
        actions: Sequence[Any],
        told: Mapping[str, Any] | None,
        progresses: Sequence[TxnVersion] = (),
    ) -> None:
        """Commits `actions`, by which the files `come` are there and the files `gone` are not, and `progresses`."""
        before = int(transaction.snapshot().version())
        said = [self._delta.mark(p.application, p.version) for p in progresses]
        with commit_lock(self.path):
            after = checkpoints.committed(self._delta, self._log, transaction, [*said, *actions], told)
        if after == before + 1:
            newest = self._log.unsafeVolatileSnapshot()
            self._followed(newest).committed(after, come, gone, progresses)
        # Of a version that somebody else wrote in between nothing is known.
        self._known = after if before == self._known and after == before + 1 else -1

    def rewrite(self, files: Sequence[DataFile], frame: DataFrame) -> None:
        """One commit in which `files` go and their rows come again, as `frame` lays them out: nothing has changed, so
        the change data feed is silent. Raises Contended, or what Delta raises, where one of them is gone by now."""
        self.commit_rewrite(files, self.write_rewrite(files, frame))

    def convert(
        self, frame: DataFrame, columns: T.StructType, types: Mapping[str, str], changed: bool, new: Mapping[str, str]
    ) -> None:
        """Replaces all files by `frame`, their rows with the types of `columns`, in one commit. `types`: the columns
        whose type changes, and the new type, for the commit's user metadata. `changed`: the change data feed has an
        entry for each row; otherwise it has none. `new`: properties that the table has from here on.

        Raises Contended, or what Delta raises, where a file is gone by now.
        """
        files = list(self.files().values())
        transaction = self._transaction(files)
        metadata = transaction.snapshot().metadata()
        transaction.updateMetadata(self._delta.with_columns(metadata, columns, new), False)
        added = self._written(transaction, frame)
        if changed:
            gone = [f.action.remove() for f in files]
        else:
            added, gone = [*map(self._delta.unchanged, added)], [self._delta.unchanged_without(f.action) for f in files]
        self._committed(transaction, [data_file(a) for a in added], files, [*added, *gone], {"types": types})

    def write_rewrite(self, files: Sequence[DataFile], frame: DataFrame) -> Callable[[], list[Any]]:
        """Writes the rows of `files`, as `frame` lays them out, for an `exchange`."""
        transaction = self._transaction(files)
        return lambda: [self._delta.unchanged(a) for a in self._written(transaction, frame)]

    def commit_rewrite(self, files: Sequence[DataFile], anew: Callable[[], list[Any]]) -> None:
        """The commit of a `rewrite`, with what its `writing` gave."""
        transaction = self._transaction(files)
        removed = [self._delta.unchanged_without(f.action) for f in files]
        added = anew()
        self._committed(transaction, [data_file(a) for a in added], files, [*added, *removed], None)

    @staticmethod
    def _written(transaction: Any, frame: DataFrame | None, few: bool = False) -> list[Any]:
        if frame is None:
            return []
        added = small_rows.written(transaction, frame) if few else None
        return items(transaction.writeFiles(frame._jdf)) if added is None else added

    def _progresses(self, transaction: Any, progress: TxnVersion | None) -> list[TxnVersion]:
        """What this commit says of who has come how far, after having seen that nobody else has come there."""
        snapshot = transaction.snapshot()
        others = int(snapshot.version()) != self._known
        found = []
        if progress is not None:
            reached = self._txn_versions_of(snapshot).get(progress.application, 0) if others else 0
            if progress.alone and reached >= progress.version:
                raise concurrent_commit(self.path)
            if progress.after is not None and reached > progress.after:
                raise concurrent_commit(self.path)
            found.append(progress)
            if self._has_lease:
                found.append(TxnVersion(txn_versions.lease_of(progress.application), 0))
        if self._turn is not None:
            if others and self._txn_versions_of(snapshot).get(_TURNS, 0) != self._turn:
                raise concurrent_commit(self.path)
            found.append(TxnVersion(_TURNS, self._turn + 1))
        self._known = int(snapshot.version())
        for mark in found:
            # To have read it makes this commit fail where another writer marks the same application meanwhile.
            transaction.readTxn().addOne(mark.application)
        return found
