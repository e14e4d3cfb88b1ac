"""A cache of what a table's log says: the live files, and the versions of its applications.

Delta computes both with a query over the whole log, anew for each version: half a second for a table of three rows. The
cache applies one commit after the other to the version before it, for all readers of the table in this process, and
reads a log of a few commits from its beginning.
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
from ingest.delta.classes import as_list, delta_classes
from ingest.delta.data_file import DataFile, data_file
from ingest.delta.txn_versions import TxnVersion

_READ_ONE_BY_ONE = 20
"""Commits: for more of them Delta's own query is faster."""

_REMEMBERED = 4
"""Versions: a reader goes on with its snapshot while others commit."""

_TABLES = 128
"""Tables whose caches are kept though no reader has them open."""


@dataclass
class _Version:
    """What is known of a version of the table; None: not known."""

    number: int
    files: Mapping[str, DataFile] | None = None
    txn_versions: Mapping[str, int] | None = None


class _UnknownFile(Exception):
    """A commit removes a file that is not in the version before it."""


class LogCache:
    """The cache of one table's log."""

    def __init__(self, spark: SparkSession, path: str, table_id: str | None) -> None:
        self._id = table_id
        self._delta = delta_classes(spark)
        self._log = self._delta.log(path)
        self._versions = deque([_Version(-1, {}, {})], _REMEMBERED)
        self._lock = Lock()

    def is_of(self, snapshot: Any) -> bool:
        """Returns True if the snapshot is of this table, and not of another one in the same place."""
        return _id_of(snapshot) == self._id

    def files(self, snapshot: Any) -> Mapping[str, DataFile]:
        """Returns name → live file of the snapshot."""
        with self._lock:
            version = self._at(int(snapshot.version()))
            if version.files is None:
                version.files = _files_of(snapshot)
            return version.files

    def files_if_few(self, snapshot: Any, most: int) -> list[DataFile] | None:
        """Returns the live files of the snapshot; None if there are more than `most`, or if Delta would have to count
        them."""
        with self._lock:
            version = self._at(int(snapshot.version()))
            if version.files is None and not 0 <= _file_count(snapshot) <= most:
                return None
        found = self.files(snapshot)
        return None if len(found) > most else list(found.values())

    def txn_versions(self, snapshot: Any) -> Mapping[str, int]:
        """Returns application → version of the snapshot."""
        with self._lock:
            version = self._at(int(snapshot.version()))
            if version.txn_versions is None:
                version.txn_versions = _txn_versions_of(snapshot)
            return version.txn_versions

    def committed(
        self,
        number: int,
        added: Iterable[DataFile],
        removed: Iterable[DataFile],
        txn_versions: Sequence[TxnVersion],
    ) -> None:
        """Records the commit `number` of this process: the files that it added and removed, and its versions."""
        with self._lock:
            before = self._known(number - 1)
            if before is not None:
                names = {f.name for f in removed}
                versions = {v.application: v.version for v in txn_versions}
                self._add(_next(before, {f.name: f for f in added}, names, versions))

    def _at(self, number: int) -> _Version:
        found = self._known(number)
        if found is None:
            found = self._replayed(number) or _Version(number)
            self._add(found)
        return found

    def _known(self, number: int) -> _Version | None:
        return next((v for v in self._versions if v.number == number), None)

    def _add(self, version: _Version) -> None:
        if self._known(version.number) is None:
            self._versions.append(version)

    def _replayed(self, number: int) -> _Version | None:
        """Returns a version after the commits since the nearest known one; None if that is too far back, or a commit
        can't be read."""
        within = range(number - _READ_ONE_BY_ONE, number)
        near = [v for v in self._versions if v.number in within and (v.files is not None or v.txn_versions is not None)]
        version = max(near, key=lambda v: v.number, default=None)
        try:
            while version is not None and version.number < number:
                version = self._after_commit(version)
        except (Py4JJavaError, _UnknownFile):
            # The commit's file is gone (it is in a checkpoint), or not understood: Delta has to compute the version.
            return None
        return version

    def _after_commit(self, before: _Version) -> _Version:
        """Returns the version after `before`, by reading its commit."""
        added, removed, txn_versions = dict[str, DataFile](), set[str](), dict[str, int]()
        for line, action in commit_log.actions(self._delta, self._log, before.number + 1):
            if "add" in action:
                file = data_file(self._delta.parse_action(line))
                added[file.name] = file
            elif "remove" in action:
                removed.add(action["remove"]["path"].rsplit("/", 1)[-1])
            elif "txn" in action:
                txn_versions[action["txn"]["appId"]] = int(action["txn"]["version"])
        if before.files is not None and not removed <= before.files.keys():
            raise _UnknownFile
        return _next(before, added, removed, txn_versions)


def _next(
    before: _Version, added: Mapping[str, DataFile], removed: Iterable[str], txn_versions: Mapping[str, int]
) -> _Version:
    """Returns the version after `before`. A file with a new deletion vector is both removed and added."""
    left = None if before.files is None else {n: f for n, f in before.files.items() if n not in removed}
    files = None if left is None else left | dict(added)
    versions = None if before.txn_versions is None else {**before.txn_versions, **txn_versions}
    return _Version(before.number + 1, files, versions)


def _files_of(snapshot: Any) -> Mapping[str, DataFile]:
    return {f.name: f for f in map(data_file, snapshot.allFiles().collect())}


def _file_count(snapshot: Any) -> int:
    """Returns the number of live files according to the `.crc` file; -1 if there is none."""
    checksum = snapshot.checksumOpt()
    return int(checksum.get().numFiles()) if checksum.isDefined() else -1


def _txn_versions_of(snapshot: Any) -> Mapping[str, int]:
    """Returns application → version. Delta writes these to the `.crc` file if they are few; else it runs a query."""
    checksum = snapshot.checksumOpt()
    written = checksum.get().setTransactions() if checksum.isDefined() else None
    found = written.get() if written is not None and written.isDefined() else snapshot.setTransactions()
    return {txn.appId(): int(txn.version()) for txn in as_list(found)}


@lru_cache(_TABLES)
def _shared(spark: SparkSession, path: str, table_id: str) -> LogCache:
    return LogCache(spark, path, table_id)


def log_cache(spark: SparkSession, path: str, snapshot: Any) -> LogCache:
    """Returns the process-wide cache of the table at `path` that `snapshot` is of."""
    table_id = _id_of(snapshot)
    return LogCache(spark, path, None) if table_id is None else _shared(spark, path, table_id)


def _id_of(snapshot: Any) -> str | None:
    """Returns Delta's id of the table, which tells it from another one in the same place; None if there is no table."""
    return str(snapshot.metadata().id()) if int(snapshot.version()) >= 0 else None
