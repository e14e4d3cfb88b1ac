"""Deletes the files below a table that belong to no retained version, without Delta's VACUUM.

VACUUM runs five queries: seconds for a table of three files. For a table of few files and few commits this module reads
the log and lists the folder instead. It deletes the files that VACUUM would.
"""

from __future__ import annotations

import time
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from ingest.delta import commit_log
from ingest.delta.classes import DeltaClasses, delta_classes
from ingest.delta.log_cache import log_cache
from ingest.tuning import DEFAULT_TUNING, Tuning

_HOUR = 3_600_000
_HIDDEN, _NOT_HIDDEN = ("_", "."), ("_change_data", "_delta_index")
"""Prefixes of folders that VACUUM ignores, and the exceptions to them."""


class _TooLarge(Exception):
    """The table has more files or commits than this module handles, or features that it does not know."""


def delete_orphans(spark: SparkSession, path: str, hours: int | None, tuning: Tuning = DEFAULT_TUNING) -> bool:
    """Deletes the files that belong to no version younger than `hours`, or than the table's own retention. Returns
    False, and deletes nothing, if the table is too large for this or has features that only VACUUM handles."""
    delta = delta_classes(spark)
    log = delta.log(path)
    now = int(time.time() * 1000)
    snapshot = log.update(False, delta.none, delta.none)
    retention = delta.retention_milliseconds(snapshot.metadata()) if hours is None else hours * _HOUR
    try:
        needed = _needed(spark, delta, log, snapshot, now - retention, tuning)
        listed = _listed(log, now - retention, tuning.orphan_search_files)
        orphans = [file for file in listed if file.getName() not in needed]
    except _TooLarge:
        return False
    files = log.dataPath().getFileSystem(log.newDeltaHadoopConf())
    for file in orphans:
        files.delete(file, False)
    return True


def _needed(spark: SparkSession, delta: DeltaClasses, log: Any, snapshot: Any, since: int, tuning: Tuning) -> set[str]:
    """Returns the names of the files of all versions since `since`, in milliseconds since 1970."""
    cache = log_cache(spark, str(log.dataPath()), snapshot)
    live = cache.files_if_few(snapshot, tuning.cached_scan_files)
    if live is None or not snapshot.metadata().partitionColumns().isEmpty():
        raise _TooLarge
    removed = _removed(delta, log, int(snapshot.version()), since, tuning.orphan_search_commits)
    actions = [file.action for file in live] + removed
    needed = set[str]()
    for action in actions:
        name, vector = str(action.path()), action.deletionVector()
        if "/" in name or "%" in name:
            # A file of another table, or one whose name on disk is escaped differently.
            raise _TooLarge
        needed.add(name)
        if vector is not None and vector.isOnDisk():
            needed.add(str(vector.absolutePath(log.dataPath()).getName()))
    return needed


def _removed(delta: DeltaClasses, log: Any, newest: int, since: int, most: int) -> list[Any]:
    """Returns Delta's `RemoveFile`s since `since`, in milliseconds since 1970. Raises _TooLarge where they lie in more
    than `most` commits."""
    found = list[Any]()
    files = log.logPath().getFileSystem(log.newDeltaHadoopConf())
    for version in range(newest, -1, -1):
        try:
            if files.getFileStatus(commit_log.commit_file(delta, log, version)).getModificationTime() < since:
                break
            if newest - version == most:
                raise _TooLarge
            lines = commit_log.actions(delta, log, version)
        except Py4JJavaError as error:
            raise _TooLarge from error
        removed = (line for line, action in lines if action.get("remove", {}).get("deletionTimestamp", 0) >= since)
        found += [delta.parse_action(line) for line in removed]
    return found


def _listed(log: Any, before: int, most: int) -> list[Any]:
    """Returns the paths of the files below the table that were last modified before `before`, in milliseconds since
    1970, without those in hidden folders. Raises _TooLarge if there are more than `most` files."""
    root = log.dataPath()
    above = len(root.toUri().getPath().rstrip("/")) + 1
    found, listed = list[Any](), root.getFileSystem(log.newDeltaHadoopConf()).listFiles(root, True)
    for number in range(most + 1):
        if not listed.hasNext():
            return found
        if number == most:
            break
        file = listed.next()
        within = str(file.getPath().toUri().getPath())[above:].split("/")
        hidden = any(part.startswith(_HIDDEN) and not part.startswith(_NOT_HIDDEN) for part in within)
        if not hidden and int(file.getModificationTime()) < before:
            found.append(file.getPath())
    raise _TooLarge
