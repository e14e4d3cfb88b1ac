"""Files below a table that no version needs which is young enough to be asked for.

Delta finds them by five queries, seconds for a table of three files. Where there are few files and few commits they are
found here by reading those, and listing: by the same rules, so that both let the same ones go.
"""

from __future__ import annotations

import time
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from ingest.delta import commit_log
from ingest.delta.classes import DeltaClasses, delta_classes
from ingest.delta.log_cache import log_cache

_COMMITS = 20
_LISTED = 500
_HOUR = 3_600_000
_HIDDEN, _NOT_HIDDEN = ("_", "."), ("_change_data", "_delta_index")
"""How folders are named that hold nothing of a version, and those that are named like these and do."""


class _Many(Exception):
    """More than is found faster here than by Delta."""


def delete_orphans(spark: SparkSession, path: str, hours: int | None) -> bool:
    """Deletes the files that are in no version younger than `hours`, or than the table says itself. Whether it has: it
    leaves a table to Delta that is too large for this, or otherwise made than those here."""
    delta = delta_classes(spark)
    log = delta.log(path)
    before = int(time.time() * 1000)
    snapshot = log.update(False, delta.none, delta.none)
    kept = delta.kept_milliseconds(snapshot.metadata()) if hours is None else hours * _HOUR
    try:
        needed = _needed(spark, delta, log, snapshot, before - kept)
        found = [file for file in _listed(log, before - kept) if file.getName() not in needed]
    except _Many:
        return False
    files = log.dataPath().getFileSystem(log.newDeltaHadoopConf())
    for file in found:
        files.delete(file, False)
    return True


def _needed(spark: SparkSession, delta: DeltaClasses, log: Any, snapshot: Any, since: int) -> set[str]:
    """Names of the files of all versions since then, in milliseconds since 1970."""
    live = log_cache(spark, str(log.dataPath()), snapshot).few_files(snapshot)
    if live is None or not snapshot.metadata().partitionColumns().isEmpty():
        raise _Many
    actions = [file.action for file in live] + _gone(delta, log, int(snapshot.version()), since)
    needed = set[str]()
    for action in actions:
        name, vector = str(action.path()), action.deletionVector()
        if "/" in name or "%" in name:
            # Of another table, or of another name where it lies.
            raise _Many
        needed.add(name)
        if vector is not None and vector.isOnDisk():
            needed.add(str(vector.absolutePath(log.dataPath()).getName()))
    return needed


def _gone(delta: DeltaClasses, log: Any, newest: int, since: int) -> list[Any]:
    """What has been removed since then: Delta's own `RemoveFile`s."""
    found = list[Any]()
    files = log.logPath().getFileSystem(log.newDeltaHadoopConf())
    for version in range(newest, -1, -1):
        try:
            if files.getFileStatus(commit_log.file_of(delta, log, version)).getModificationTime() < since:
                break
            if newest - version == _COMMITS:
                raise _Many
            lines = commit_log.actions(delta, log, version)
        except Py4JJavaError as error:
            raise _Many from error
        removed = (line for line, action in lines if action.get("remove", {}).get("deletionTimestamp", 0) >= since)
        found += [delta.action(line) for line in removed]
    return found


def _listed(log: Any, before: int) -> list[Any]:
    """The files below the table that are older, but for those that are none of its own."""
    root = log.dataPath()
    above = len(root.toUri().getPath().rstrip("/")) + 1
    found, listed = list[Any](), root.getFileSystem(log.newDeltaHadoopConf()).listFiles(root, True)
    for number in range(_LISTED + 1):
        if not listed.hasNext():
            return found
        if number == _LISTED:
            break
        file = listed.next()
        within = str(file.getPath().toUri().getPath())[above:].split("/")
        hidden = any(part.startswith(_HIDDEN) and not part.startswith(_NOT_HIDDEN) for part in within)
        if not hidden and int(file.getModificationTime()) < before:
            found.append(file.getPath())
    raise _Many
