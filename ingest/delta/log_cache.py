"""What a table has, as its log says: its live files, and how far each application has come.

Delta finds both with a query over the whole log, at each new version again: half a second for a table of three rows.
Here they are followed from commit to commit, by all who have this table open in this process; and a log of a few
commits is read from its beginning.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from ingest.delta import commit_log
from ingest.delta.classes import delta_classes, items
from ingest.delta.data_file import DataFile, data_file
from ingest.delta.txn_versions import TxnVersion

_READ_ONE_BY_ONE = 20
"""Commits: of more Delta's own query is the faster one."""

_REMEMBERED = 4
"""Versions: who has asked for the newest one a moment ago still needs it when others have committed."""

_FEW = 32
"""Files: of more, a reader had better ask Delta which of them it needs."""

_TABLES = 128
"""So many are followed on when nobody has them open."""


@dataclass
class _Version:
    """What is known of one; None: nothing."""

    number: int
    files: Mapping[str, DataFile] | None = None
    marks: Mapping[str, int] | None = None


class _Unheard(Exception):
    """A file goes that has not come by this name."""


class LogCache:
    """The log of one table."""

    def __init__(self, spark: SparkSession, path: str, table_id: str | None) -> None:
        self._id = table_id
        self._delta = delta_classes(spark)
        self._log = self._delta.log(path)
        self._versions = deque([_Version(-1, {}, {})], _REMEMBERED)
        self._lock = Lock()

    def is_of(self, snapshot: Any) -> bool:
        """Whether it is that table's."""
        return _id_of(snapshot) == self._id

    def files(self, snapshot: Any) -> Mapping[str, DataFile]:
        """name → live file, as of a snapshot."""
        with self._lock:
            version = self._at(int(snapshot.version()))
            if version.files is None:
                version.files = _files_of(snapshot)
            return version.files

    def few_files(self, snapshot: Any) -> list[DataFile] | None:
        """The live files where these are few; None where they are many, or where Delta would have to count them."""
        with self._lock:
            version = self._at(int(snapshot.version()))
            if version.files is None and not 0 <= _count_of(snapshot) <= _FEW:
                return None
        found = self.files(snapshot)
        return None if len(found) > _FEW else list(found.values())

    def marks(self, snapshot: Any) -> Mapping[str, int]:
        """application → how far it has come, as of a snapshot."""
        with self._lock:
            version = self._at(int(snapshot.version()))
            if version.marks is None:
                version.marks = _txn_versions_of(snapshot)
            return version.marks

    def committed(
        self, number: int, come: Iterable[DataFile], gone: Iterable[DataFile], marks: Sequence[TxnVersion]
    ) -> None:
        """The commit `number` did this to the version before it."""
        with self._lock:
            before = self._known(number - 1)
            if before is not None:
                left = {f.name for f in gone}
                self._add(_next(before, {f.name: f for f in come}, left, {m.application: m.version for m in marks}))

    def _at(self, number: int) -> _Version:
        found = self._known(number)
        if found is None:
            found = self._followed(number) or _Version(number)
            self._add(found)
        return found

    def _known(self, number: int) -> _Version | None:
        return next((v for v in self._versions if v.number == number), None)

    def _add(self, version: _Version) -> None:
        if self._known(version.number) is None:
            self._versions.append(version)

    def _followed(self, number: int) -> _Version | None:
        """From the nearest version that something is known of, commit by commit; None where it is too far."""
        within = range(number - _READ_ONE_BY_ONE, number)
        near = [v for v in self._versions if v.number in within and (v.files is not None or v.marks is not None)]
        version = max(near, key=lambda v: v.number, default=None)
        try:
            while version is not None and version.number < number:
                version = self._one_on(version)
        except (Py4JJavaError, _Unheard):
            # A commit that is no longer there, as it is in a checkpoint, or that isn't understood: Delta is asked.
            return None
        return version

    def _one_on(self, before: _Version) -> _Version:
        come, gone, marks = dict[str, DataFile](), set[str](), dict[str, int]()
        for line, action in commit_log.actions(self._delta, self._log, before.number + 1):
            if "add" in action:
                file = data_file(self._delta.action(line))
                come[file.name] = file
            elif "remove" in action:
                gone.add(action["remove"]["path"].rsplit("/", 1)[-1])
            elif "txn" in action:
                marks[action["txn"]["appId"]] = int(action["txn"]["version"])
        if before.files is not None and not gone <= before.files.keys():
            raise _Unheard
        return _next(before, come, gone, marks)


def _next(before: _Version, come: Mapping[str, DataFile], gone: Iterable[str], marks: Mapping[str, int]) -> _Version:
    """Of a file whose rows go in part a commit says that it goes and that it comes."""
    files = None if before.files is None else {n: f for n, f in before.files.items() if n not in gone} | dict(come)
    return _Version(before.number + 1, files, None if before.marks is None else {**before.marks, **marks})


def _files_of(snapshot: Any) -> Mapping[str, DataFile]:
    return {f.name: f for f in map(data_file, snapshot.allFiles().collect())}


def _count_of(snapshot: Any) -> int:
    """So many live files there are; -1 where no commit wrote it down beside itself."""
    beside = snapshot.checksumOpt()
    return int(beside.get().numFiles()) if beside.isDefined() else -1


def _txn_versions_of(snapshot: Any) -> Mapping[str, int]:
    """Beside a commit Delta writes down how far each application has come by then, where these are few."""
    beside = snapshot.checksumOpt()
    said = beside.get().setTransactions() if beside.isDefined() else None
    found = said.get() if said is not None and said.isDefined() else snapshot.setTransactions()
    return {mark.appId(): int(mark.version()) for mark in items(found)}


@lru_cache(_TABLES)
def _shared(spark: SparkSession, path: str, table_id: str) -> LogCache:
    return LogCache(spark, path, table_id)


def log_cache(spark: SparkSession, path: str, snapshot: Any) -> LogCache:
    """The one of the table at `path` that `snapshot` is of."""
    table_id = _id_of(snapshot)
    return LogCache(spark, path, None) if table_id is None else _shared(spark, path, table_id)


def _id_of(snapshot: Any) -> str | None:
    """Delta's own, which another table in the same place would not have; None where there is no table yet."""
    return str(snapshot.metadata().id()) if int(snapshot.version()) >= 0 else None
