"""One Delta table as its log has it: its files, its marks, its rows.

A DataFrame of a Delta table asks the log anew in every plan, which takes longer than a small batch. Here the files
are asked for once and followed from commit to commit; a commit by somebody else is noticed by its version.
"""

from __future__ import annotations

import json
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
from ingest.delta.snapshot_cache import SnapshotCache
from ingest.jvm.classes import java_class
from ingest.spark.prepared import Query


def exists(spark: SparkSession, path: str) -> bool:
    """Whether there is a Delta table at `path`."""
    return bool(java_class(spark._jvm, "io.delta.tables.DeltaTable").isDeltaTable(spark._jsparkSession, path))


class ReadTable:
    """The Delta table at `path`, which may not be there yet."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._delta = delta_classes(spark)
        self.path = path
        self._follows: LogCache | None = None
        self._seen = False

    def exists(self) -> bool:
        self._seen = self._seen or exists(self._spark, self.path)
        return self._seen

    def rows(self, schema: T.StructType | None = None) -> DataFrame:
        """All rows as of now; with `schema`, none where it hasn't been written yet."""
        if schema is not None and not self.exists():
            return self._spark.createDataFrame([], schema)
        return self._rows_of(self._newest.now(), {})

    def rows_at(self, version: int) -> DataFrame:
        """All rows as of a version."""
        newest = self._newest.now()
        return self._rows_of(newest if int(newest.version()) == version else None, {"versionAsOf": str(version)})

    def _rows_of(self, snapshot: Any, otherwise: Mapping[str, str]) -> DataFrame:
        """Those of a snapshot, where its files are few, else by `otherwise`: options by which Delta reads them."""
        few = None if snapshot is None else self._followed(snapshot).few_files(snapshot)
        if few is None or int(snapshot.version()) < 0:
            return self._spark.read.format("delta").options(**otherwise).load(self.path)
        return rows_of(self._spark, self._log, snapshot, [f.action for f in few])

    def files(self) -> Mapping[str, DataFile]:
        """name → file, as of now."""
        snapshot = self._snapshot()
        return self._followed(snapshot).files(snapshot)

    def size(self) -> int:
        """How many rows there are, by what the log tells; 0 where there is no table."""
        return live_rows(self.files().values()) if self.exists() else 0

    def files_named(self, names: Iterable[str]) -> list[DataFile]:
        """The files of these names, as of now. Raises Contended where one is gone."""
        files = self.files()
        wanted = list(names)
        if any(name not in files for name in wanted):
            raise concurrent_commit(self.path)
        return [files[name] for name in wanted]

    def _txn_versions_of(self, snapshot: Any) -> Mapping[str, int]:
        return self._followed(snapshot).marks(snapshot)

    def _followed(self, snapshot: Any) -> LogCache:
        if self._follows is None or not self._follows.is_of(snapshot):
            self._follows = log_cache(self._spark, self.path, snapshot)
        return self._follows

    def rows_before(self, version: int) -> DataFrame | None:
        """The rows before the commit `version`, with `_metadata`; None where that commit made the table."""
        return self.rows_at(version - 1) if version else None

    def rows_in(self, files: Iterable[DataFile]) -> DataFrame:
        """The rows of these files, without asking the log; their `_metadata` tells where they lie."""
        return rows_of(self._spark, self._log, self._snapshot(), [f.action for f in files])

    def run_prepared(self, files: Iterable[DataFile], query: Query, by: tuple[Hashable, ...] = ()) -> DataFrame:
        """`query(*by, rows)` of the rows of these files, each asked for itself, in one task. It is planned once: what
        it is may depend on `by` alone."""
        some = list(files)
        marked = any(f.vector is not None for f in some)
        return run_prepared_on(self._spark, self._log, self._snapshot(), [f.action for f in some], marked, query, by)

    def identity(self) -> str:
        """Returns Delta's own id of the table: another table in the same place has another one."""
        return str(self._snapshot().metadata().id())

    def version(self) -> int:
        """The newest one."""
        return int(self._newest.now().version())

    def txn_version(self, application: str) -> int:
        """How far an application has come by the table's own account; 0 where it never wrote."""
        return self._txn_versions_of(self._snapshot()).get(application, 0)

    def property(self, name: str) -> str | None:
        """A property of the table, as of now."""
        found = self._snapshot().metadata().configuration().get(name)
        return str(found.get()) if found.isDefined() else None

    def is_mapped(self) -> bool:
        """Whether the files may have other names for the columns (Delta's column mapping)."""
        return self.property("delta.columnMapping.mode") not in (None, "none")

    def physical_name(self, column: str) -> str:
        """Returns the name of a column in the files."""
        fields = json.loads(self._snapshot().metadata().schemaString())["fields"]
        named = (f["metadata"].get("delta.columnMapping.physicalName") for f in fields if f["name"] == column)
        return next((str(name) for name in named if name is not None), column)

    @cached_property
    def _log(self) -> Any:
        return self._delta.log(self.path)

    @cached_property
    def _newest(self) -> SnapshotCache:
        return SnapshotCache(self._delta, self._log)

    def _snapshot(self) -> Any:
        return self._newest.lately()
