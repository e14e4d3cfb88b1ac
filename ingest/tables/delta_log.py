"""One Delta table by its log: which files it has now, and commits to it, through Delta's own transactions.

A DataFrame of a Delta table asks the log anew in every plan, which takes longer than a small batch. Here the files
are asked for once and followed from commit to commit; a commit by somebody else is noticed by its version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import types as T

from ingest.names import identifier
from ingest.tables import commit_log, marks
from ingest.tables.beside import beside
from ingest.tables.contention import COLLISIONS, changed_meanwhile
from ingest.tables.data_file import DataFile, ReadyFile, data_file
from ingest.tables.deletion_vectors import thinned
from ingest.tables.delta_jvm import delta_classes, items
from ingest.tables.known_files import rows_of
from ingest.tables.marks import Progress, reached
from ingest.tables.newest_snapshot import NewestSnapshot
from ingest.tables.one_at_a_time import one_at_a_time

SELDOM_CHECKPOINTS = {"delta.checkpointInterval": "100"}
"""Delta's default of 10 costs a small batch seconds each tenth time; a hundred commit files are read at once."""

NO_STATISTICS = {"delta.dataSkippingNumIndexedCols": "0"}

_TURNS = "batches"
"""An application that every batch of every writer belongs to; its progress is how many there were."""

CHANGE_TYPE = "_change_type"
"""A row of a commit with this column set belongs to the change data feed alone, as Delta's own writers have it."""


def exists(spark: SparkSession, path: str) -> bool:
    """Whether there is a Delta table at `path`."""
    return bool(DeltaTable.isDeltaTable(spark, path))


class Table:
    """The Delta table at `path`, which may not be there yet."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._delta = delta_classes(spark)
        self.path = path
        self._files: dict[str, DataFile] = {}
        self._followed = -1
        self._known = -1
        self._turn: int | None = None
        self._claimed = False
        self._seen = False

    def exists(self) -> bool:
        self._seen = self._seen or exists(self._spark, self.path)
        return self._seen

    def create(self, schema: T.StructType, properties: Mapping[str, str]) -> None:
        """Makes it, empty; one that is there already stays as it is."""
        builder: Any = DeltaTable.createIfNotExists(self._spark).location(self.path).addColumns(schema)
        for key, value in (SELDOM_CHECKPOINTS | dict(properties)).items():
            builder = builder.property(key, value)
        with one_at_a_time(self.path):
            builder.execute()

    def rows(self, schema: T.StructType | None = None) -> DataFrame:
        """All rows; with `schema`, none where it hasn't been written yet."""
        if schema is None or self.exists():
            return self._spark.read.format("delta").load(self.path)
        return self._spark.createDataFrame([], schema)

    def files(self) -> dict[str, DataFile]:
        """name → file, as of now."""
        return self._files_of(self._snapshot())

    def named(self, names: Iterable[str]) -> list[DataFile]:
        """The files of these names, as of now. Raises Contended where one is gone."""
        files = self.files()
        wanted = list(names)
        if any(name not in files for name in wanted):
            raise changed_meanwhile(self.path)
        return [files[name] for name in wanted]

    def _files_of(self, snapshot: Any) -> dict[str, DataFile]:
        version = int(snapshot.version())
        if version != self._followed:
            self._files = {f.name: f for f in map(data_file, snapshot.allFiles().collect())}
            self._followed = version
        return self._files

    def begin(self, application: str) -> bool:
        """What is read from here on, be it no table yet, is what the next commit builds on: it fails where the batch of
        another writer has come in between. Whether anybody else has written since this one did."""
        snapshot = self._snapshot()
        others = int(snapshot.version()) != self._known
        if others or self._turn is None:
            snapshot = marks.let_pass(self._snapshot, application)
            self._turn = reached(snapshot, _TURNS)
            self._known = int(snapshot.version())
        return others

    def version(self) -> int:
        """The newest one."""
        return int(self._newest.now().version())

    def is_as_left(self) -> bool:
        """Whether nobody else has written since this one did."""
        return self.version() == self._known

    def claim(self, application: str, seconds: float) -> None:
        """Other writers wait before they `begin`: until the next commit of the application, at most for so long."""
        transaction = self._log.startTransaction(self._delta.none, self._delta.some(self._snapshot()))
        mark = self._delta.mark(marks.claim_of(application), marks.end_of_claim(seconds))
        self._committed(transaction, [], [], [mark], None)
        self._claimed = True

    def reached(self, application: str) -> int:
        """How far an application has come by the table's own account; 0 where it never wrote."""
        return reached(self._snapshot(), application) if self.exists() else 0

    def commits(self) -> Iterator[commit_log.Told]:
        """The commits that say something of themselves, the newest first, as far back as the log goes."""
        return commit_log.commits(self._delta, self._log, int(self._snapshot().version()))

    def property(self, name: str) -> str | None:
        """A property of the table, as of now."""
        found = self._snapshot().metadata().configuration().get(name)
        return str(found.get()) if found.isDefined() else None

    def set_property(self, name: str, value: str) -> None:
        """Sets a property of a table that is there."""
        self.set_properties({name: value})

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Sets several, in one commit."""

        def text(said: str) -> str:
            # Markers can't stand for a property's name or value.
            return "'" + said.replace("\\", "\\\\").replace("'", "\\'") + "'"

        pairs = ", ".join(f"{text(name)} = {text(value)}" for name, value in properties.items())
        with one_at_a_time(self.path):
            self._spark.sql(f"ALTER TABLE delta.{identifier(self.path)} SET TBLPROPERTIES ({pairs})")

    def shorten_log(self, hours: int | None) -> None:
        """Deletes what is in the log from more than `hours` ago, or than the table says itself, but for what the
        versions since then are told by."""
        since = self._delta.none if hours is None else self._delta.some_long(hours * 3_600_000)
        self._log.cleanUpExpiredLogs(self._newest.now(), self._delta.none, since, self._delta.to_the_minute)

    def delete(self, condition: Column) -> None:
        """Takes away the rows of a table that is there for which `condition` holds."""
        with one_at_a_time(self.path):
            DeltaTable.forPath(self._spark, self.path).delete(condition)

    def rows_before(self, version: int) -> DataFrame | None:
        """The rows before the commit `version`, with `_metadata`; None where that commit made the table."""
        if version == 0:
            return None
        return self._spark.read.format("delta").option("versionAsOf", version - 1).load(self.path)

    def rows_in(self, files: Iterable[DataFile]) -> DataFrame:
        """The rows of these files, without asking the log; their `_metadata` tells where they lie."""
        return rows_of(self._spark, self._log, self._snapshot(), [f.action for f in files])

    def commit(
        self,
        frame: DataFrame | None,
        without: Sequence[DataFile] = (),
        without_rows: DataFrame | None = None,
        told: Mapping[str, Any] | None = None,
        progress: Progress | None = None,
        new: Mapping[str, str] = MappingProxyType({}),
        columns: T.StructType | None = None,
        ready: Sequence[ReadyFile] = (),
        after: Callable[[], object] | None = None,
    ) -> list[DataFile]:
        """One commit, the first of which makes the table: the rows of `frame` come, in files that are returned, and the
        files `ready`; the files `without` go, and so do `without_rows`, which are known by their `LOCATION`. `frame`
        has the table's columns and types, and may have `CHANGE_TYPE`. `told`: what the commit says of itself (its user
        metadata). `new`: properties of a new table. `columns`: those that the table has from here on, with the
        properties `new`. `after`: what has to be done before the commit, once its files are written.

        Raises Contended where another writer has come as far as `progress`, or has committed a batch since `begin`,
        and what Delta raises where that happens at this very moment."""
        transaction = self._transaction(without)
        before = int(transaction.snapshot().version())
        if frame is not None and before < 0:
            transaction.updateMetadata(self._delta.metadata(frame, SELDOM_CHECKPOINTS | dict(new)), False)
        elif columns is not None:
            metadata = transaction.snapshot().metadata()
            transaction.updateMetadata(self._delta.with_columns(metadata, columns, new), False)
        progresses = self._marks(transaction, progress)
        pairs, emptied = list[Any](), list[DataFile]()
        if without_rows is None:
            added = self._written(transaction, frame)
        else:
            with beside(partial(thinned, self._log, self.path, self.files(), without_rows)) as marking:
                added = self._written(transaction, frame)
            pairs, emptied = marking.result()
        added += [self._delta.added(file) for file in ready]
        without = [*without, *emptied]
        removed = [f.action.remove() for f in without]
        marked = [action for pair in pairs for action in (pair._1(), pair._2())]
        come = [a for a in added if a.getClass().getSimpleName() == "AddFile"]
        now = [*come, *(pair._1() for pair in pairs)]
        if after is not None:
            after()
        self._committed(transaction, now, without, [*progresses, *added, *removed, *marked], told)
        self._turn = None if self._turn is None else self._turn + 1
        self._claimed = False
        return [data_file(a) for a in come]

    def _transaction(self, gone: Sequence[DataFile]) -> Any:
        """One that takes away `gone`. Who else does so from now on collides with it; who did so before is seen here."""
        snapshot = self._snapshot()
        if gone:
            now = self._files_of(snapshot)
            if any(f.name not in now or now[f.name].vector != f.vector for f in gone):
                raise changed_meanwhile(self.path)
        transaction = self._log.startTransaction(self._delta.none, self._delta.some(snapshot))
        transaction.trackFilesRead(self._delta.sequence([f.action for f in gone]))
        return transaction

    def _committed(
        self,
        transaction: Any,
        come: Sequence[Any],
        gone: Sequence[DataFile],
        actions: Sequence[Any],
        told: Mapping[str, Any] | None,
    ) -> None:
        """Commits `actions`, by which the files `come` are there and the files `gone` are not."""
        before = int(transaction.snapshot().version())
        with one_at_a_time(self.path):
            after = int(transaction.commit(self._delta.sequence(actions), self._delta.write(told), self._delta.empty))
        if before == self._followed and after == before + 1:
            names = {f.name for f in gone}
            now = {f.name: f for f in map(data_file, come)}
            self._files = {n: f for n, f in self._files.items() if n not in names} | now
            self._followed = after
        # Of a version that somebody else wrote in between nothing is known.
        self._known = after if before == self._known and after == before + 1 else -1

    def fold(self, files: Sequence[DataFile], frame: DataFrame) -> None:
        """`rewrite`, for order's sake: it gives way to whoever else writes these files."""
        with suppress(*COLLISIONS):
            self.rewrite(files, frame)

    def rewrite(self, files: Sequence[DataFile], frame: DataFrame) -> None:
        """One commit in which `files` go and their rows come again, as `frame` lays them out: nothing has changed, so
        the change data feed is silent. Raises Contended, or what Delta raises, where one of them is gone by now."""
        transaction = self._transaction(files)
        added = [self._delta.unchanged(a) for a in items(transaction.writeFiles(frame._jdf))]
        removed = [self._delta.unchanged_without(f.action) for f in files]
        self._committed(transaction, added, files, [*added, *removed], None)

    @staticmethod
    def _written(transaction: Any, frame: DataFrame | None) -> list[Any]:
        return [] if frame is None else items(transaction.writeFiles(frame._jdf))

    def _marks(self, transaction: Any, progress: Progress | None) -> list[Any]:
        """What this commit says of who has come how far, after having seen that nobody else has come there."""
        snapshot = transaction.snapshot()
        others = int(snapshot.version()) != self._known
        found = []
        if progress is not None:
            if progress.alone and others and reached(snapshot, progress.application) >= progress.version:
                raise changed_meanwhile(self.path)
            found.append(progress)
            if self._claimed:
                found.append(Progress(marks.claim_of(progress.application), 0))
        if self._turn is not None:
            if others and reached(snapshot, _TURNS) != self._turn:
                raise changed_meanwhile(self.path)
            found.append(Progress(_TURNS, self._turn + 1))
        self._known = int(snapshot.version())
        for mark in found:
            # To have read it makes this commit fail where another writer marks the same application meanwhile.
            transaction.readTxn().addOne(mark.application)
        return [self._delta.mark(mark.application, mark.version) for mark in found]

    @cached_property
    def _log(self) -> Any:
        return self._delta.log(self.path)

    @cached_property
    def _newest(self) -> NewestSnapshot:
        return NewestSnapshot(self._delta, self._log)

    def _snapshot(self) -> Any:
        return self._newest.lately()
