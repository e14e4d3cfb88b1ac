"""Reads one Delta table: its files, properties, transaction versions and rows.

A DataFrame that Delta makes for a table resolves the log in every plan, which takes longer than a small batch. Here the
files come from a cache that follows the log commit by commit, and a frame is made of the files themselves.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Hashable, Iterable, Mapping
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from ingest.delta.classes import delta_classes
from ingest.delta.conflict_retry import concurrent_commit
from ingest.delta.data_file import DataFile, live_rows
from ingest.delta.file_index import rows_of, run_prepared_on
from ingest.delta.log_cache import LogCache, log_cache
from ingest.jvm.classes import static_method
from ingest.spark.prepared import Query
from ingest.tuning import DEFAULT_TUNING, Tuning

MAPPING = "delta.columnMapping.mode"
"""The property of a table whose files may have other names for its columns."""


def exists(spark: SparkSession, path: str) -> bool:
    """Returns True if there is a Delta table at `path`."""
    is_delta_table = static_method(spark._jvm, "io.delta.tables.DeltaTable", "isDeltaTable")
    return bool(is_delta_table(spark._jsparkSession, path))


class ReadTable:
    """The Delta table at `path`, which need not exist yet.

    Methods that return "current" state read a snapshot that was the newest less than a second ago
    (`Tuning.fresh_snapshot_seconds`); `rows` and `version` look for newer commits first.
    """

    def __init__(self, spark: SparkSession, path: str, tuning: Tuning = DEFAULT_TUNING) -> None:
        self.tuning = tuning
        self._spark = spark
        self._delta = delta_classes(spark)
        self.path = path
        self._cache: LogCache | None = None
        self._was_found = False
        self._updated = -math.inf

    def exists(self) -> bool:
        self._was_found = self._was_found or exists(self._spark, self.path)
        return self._was_found

    def rows(self, schema: T.StructType | None = None) -> DataFrame:
        """Returns all rows of the newest version. With `schema`, returns no rows if there is no table."""
        if schema is not None and not self.exists():
            return self._spark.createDataFrame([], schema)
        return self._rows_of(self._newest_snapshot(), {})

    def rows_at(self, version: int) -> DataFrame:
        """Returns all rows of a version."""
        newest = self._newest_snapshot()
        return self._rows_of(newest if int(newest.version()) == version else None, {"versionAsOf": str(version)})

    def _rows_of(self, snapshot: Any, options: Mapping[str, str]) -> DataFrame:
        """Returns the rows of a snapshot with few files; otherwise Delta reads the table with `options`."""
        most = self.tuning.cached_scan_files
        few = None if snapshot is None else self._log_cache(snapshot).files_if_few(snapshot, most)
        if few is None or int(snapshot.version()) < 0:
            return self._spark.read.format("delta").options(**options).load(self.path)
        return rows_of(self._spark, self._log, snapshot, [f.action for f in few])

    def files(self) -> Mapping[str, DataFile]:
        """Returns name → current live file."""
        snapshot = self._snapshot()
        return self._log_cache(snapshot).files(snapshot)

    def size(self) -> int:
        """Returns the current number of rows according to the log; 0 if there is no table."""
        return live_rows(self.files().values()) if self.exists() else 0

    def files_named(self, names: Iterable[str]) -> list[DataFile]:
        """Returns the current files of these names. Raises Contended if another writer has removed one."""
        files = self.files()
        wanted = list(names)
        if any(name not in files for name in wanted):
            raise concurrent_commit(self.path)
        return [files[name] for name in wanted]

    def _txn_versions_of(self, snapshot: Any) -> Mapping[str, int]:
        return self._log_cache(snapshot).txn_versions(snapshot)

    def _log_cache(self, snapshot: Any) -> LogCache:
        if self._cache is None or not self._cache.is_of(snapshot):
            self._cache = log_cache(self._spark, self.path, snapshot)
        return self._cache

    def rows_before(self, version: int) -> DataFrame | None:
        """Returns the rows before the commit `version`, with `_metadata`; None if that commit created the table."""
        return self.rows_at(version - 1) if version else None

    def rows_in(self, files: Iterable[DataFile]) -> DataFrame:
        """Returns the rows of `files`, with `_metadata`, without resolving the log."""
        return rows_of(self._spark, self._log, self._snapshot(), [f.action for f in files])

    def run_prepared(self, files: Iterable[DataFile], query: Query, by: tuple[Hashable, ...] = ()) -> DataFrame:
        """Returns `query(*by, rows)` of the rows of `files`, computed by one task. The query must work row by row. It
        is planned once for each `by` and may depend on nothing else."""
        chosen = list(files)
        marked = any(f.vector_id is not None for f in chosen)
        return run_prepared_on(self._spark, self._log, self._snapshot(), [f.action for f in chosen], marked, query, by)

    def identity(self) -> str:
        """Returns Delta's id of the table: another table in the same place has another one."""
        return str(self._snapshot().metadata().id())

    def version(self) -> int:
        """Returns the newest version."""
        return int(self._newest_snapshot().version())

    def txn_version(self, application: str) -> int:
        """Returns the current version of an application in this table; 0 if it has none."""
        return self._txn_versions_of(self._snapshot()).get(application, 0)

    def property(self, name: str) -> str | None:
        """Returns a current property of the table; None if it is not set."""
        found = self._snapshot().metadata().configuration().get(name)
        return str(found.get()) if found.isDefined() else None

    def is_mapped(self) -> bool:
        """Returns True if the table has column mapping: files may have other names for the columns."""
        return self.property(MAPPING) not in (None, "none")

    def physical_name(self, column: str) -> str:
        """Returns the name of a column in the files."""
        fields = json.loads(self._snapshot().metadata().schemaString())["fields"]
        named = (f["metadata"].get("delta.columnMapping.physicalName") for f in fields if f["name"] == column)
        return next((str(name) for name in named if name is not None), column)

    @cached_property
    def _log(self) -> Any:
        return self._delta.log(self.path)

    def _newest_snapshot(self) -> Any:
        """Returns a snapshot with every commit up to this call."""
        newest = self._log.update(False, self._delta.none, self._delta.none)
        self._updated = time.monotonic()
        return newest

    def _snapshot(self) -> Any:
        """Returns a snapshot that was the newest less than `fresh_snapshot_seconds` ago. Later commits of other writers
        conflict with this writer's own commit."""
        is_fresh = time.monotonic() - self._updated < self.tuning.fresh_snapshot_seconds
        return self._log.unsafeVolatileSnapshot() if is_fresh else self._newest_snapshot()
