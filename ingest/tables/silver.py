"""Silver: one Delta table per source table, its live rows and nothing else, for any Delta reader."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence, Set
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.change import (
    COLUMN_POSITIONS,
    COLUMN_POSITIONS_TYPE,
    POSITION_COLUMN,
    SOURCE_TS,
    quoted,
)
from ingest.changelog.evolution import TableColumn
from ingest.changelog.images import Shape, default_of
from ingest.changelog.merge import ACTION, DELETE, INSERT, UPDATE
from ingest.changelog.position import POSITION
from ingest.changelog.types import spark_type
from ingest.errors import Contended
from ingest.tables import delta_log
from ingest.tables.delta_log import CHANGE_TYPE, DataFile

# No deletion vectors: any reader reads such a table, and a small MERGE took a third of the time without them.
_PROPERTIES = {"delta.enableChangeDataFeed": "true"}
FILE = "_file"
_NEEDS_MAPPING = re.compile(r"[ ,;{}()\n\t=]")
_REWRITABLE = 8 << 20
"""Bytes of files that a commit may write anew by itself; for more, Delta's MERGE spreads the work."""
_SMALL_FILES = 16
"""So many small files, and the next rewrite takes them all in."""


def schema_of(columns: Sequence[TableColumn]) -> T.StructType:
    """The columns by their logical types, then the few that begin with `_`."""
    return T.StructType(
        [
            *(T.StructField(c.name, spark_type(c.type)) for c in columns),
            T.StructField(POSITION_COLUMN, POSITION),
            T.StructField(SOURCE_TS, T.TimestampType()),
            T.StructField(COLUMN_POSITIONS, COLUMN_POSITIONS_TYPE),
        ]
    )


class Silver:
    """The silver table of one source table."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._table = delta_log.Table(spark, path)
        self.path = path

    def exists(self) -> bool:
        return self._table.exists()

    def rows(self, as_of: str | None = None) -> DataFrame:
        """The live rows; with `as_of`, those of a version of the table or of a time (ISO 8601)."""
        if as_of is None:
            return self._table.rows()
        option = "versionAsOf" if as_of.isdigit() else "timestampAsOf"
        return self._spark.read.format("delta").option(option, as_of).load(self.path)

    @staticmethod
    def _mapped(shape: Shape) -> bool:
        """Parquet can't hold such a name; mapping shuts some readers out, so only these tables have it."""
        return any(_NEEDS_MAPPING.search(c.name) for c in shape.columns)

    def _properties(self, shape: Shape) -> dict[str, str]:
        # What readers skip files by: the key, and nothing else of a row gets into the log.
        statistics = ",".join(_path(k) for k in shape.key) or f"{POSITION_COLUMN}.major"
        properties = {**_PROPERTIES, "delta.dataSkippingStatsColumns": statistics}
        return {**properties, "delta.columnMapping.mode": "name"} if self._mapped(shape) else properties

    def create(self, shape: Shape) -> None:
        """An empty table; one that is there already stays as it is."""
        self._table.create(schema_of(shape.columns), self._properties(shape))

    def evolve(self, before: Shape, after: Shape) -> None:
        """Columns added (a metadata commit), or widened or filled with a default (a rewrite)."""
        old = {c.name: c for c in before.columns}
        rewrite = any(
            c.filled is not None if c.name not in old else spark_type(old[c.name].type) != spark_type(c.type)
            for c in after.columns
        )
        rows = self.rows()
        if not rewrite:
            rows = rows.limit(0)
        present = set(rows.columns)
        columns = [
            (quoted(c.name) if c.name in present else default_of(c)).cast(spark_type(c.type)).alias(c.name)
            for c in after.columns
        ]
        frame = rows.select(*columns, POSITION_COLUMN, SOURCE_TS, COLUMN_POSITIONS)
        writer = frame.write.format("delta")
        if rewrite:
            writer.mode("overwrite").option("overwriteSchema", "true").save(self.path)
        else:
            writer.mode("append").option("mergeSchema", "true").save(self.path)

    def matching(self, states: DataFrame, key: Sequence[str]) -> DataFrame:
        """The rows whose key is in `states`, with `_file`, the name of their file. The table must be there.

        It is read once and not shuffled, and only those of its columns that are asked for."""
        wanted = states.select(*(quoted(c) for c in key))
        return self.located().join(F.broadcast(wanted), list(key), "left_semi")

    def layered(self) -> DataFrame:
        """The rows of which some column is older than the row, with `_file`."""
        return self.located().where(F.col(COLUMN_POSITIONS).isNotNull())

    def located(self) -> DataFrame:
        """All rows, with `_file`."""
        return _with_file(self._table.rows_in(self._table.files().values()))

    def located_before(self, version: int) -> DataFrame | None:
        """All rows as they were before the commit `version`, with `_file`; None where that commit made the table."""
        rows = self._table.rows_before(version)
        return None if rows is None else _with_file(rows)

    def told(self) -> delta_log.Told | None:
        """What the last batch that was applied here says of itself."""
        return self._table.told()

    def apply(self, winners: DataFrame, shape: Shape, touched: Set[str], told: Mapping[str, Any]) -> None:
        """`winners`: states that take effect, with their `_action`, none of which is `bury`. `touched`: the names of
        the files that hold rows of the same keys. `told`: what the commit says of itself. One commit."""
        if self._mapped(shape) and not self.exists():
            self.create(shape)  # Delta refuses a first write that brings both mapping and a change data feed.
        if not touched:
            self._table.commit(self._images(winners, shape), told=told, new=self._properties(shape))
            return
        files = self._table.files()
        small = [f for f in files.values() if f.size < _REWRITABLE // _SMALL_FILES]
        if not touched <= files.keys():
            raise Contended(
                f"another writer changed {self.path} while a batch was on its way into it",
                "run the same again: it goes on where it stood; one pipeline writes a table at a time",
            )
        rewritten = {name: files[name] for name in touched}
        if len(small) >= _SMALL_FILES:
            rewritten |= {f.name: f for f in small}
        if sum(f.size for f in rewritten.values()) <= _REWRITABLE:
            self._rewrite(winners, shape, list(rewritten.values()), told)
        else:
            self._merge(winners, shape, told)

    @staticmethod
    def _images(rows: DataFrame, shape: Shape, *more: Column) -> DataFrame:
        """The table's columns with their types, and `more`."""
        fields = schema_of(shape.columns).fields
        return rows.select(*(quoted(f.name).cast(f.dataType).alias(f.name) for f in fields), *more)

    def _rewrite(self, winners: DataFrame, shape: Shape, files: list[DataFile], told: Mapping[str, Any]) -> None:
        """The rows of `files` and the winners, into new files; and what changed, into the change data feed."""
        key = list(shape.identity)
        taken = winners.select(*(quoted(k) for k in key), ACTION)
        gone = F.when(F.col(ACTION) == DELETE, "delete").when(F.col(ACTION) == UPDATE, "update_preimage")
        old = self._table.rows_in(files).join(F.broadcast(taken), key, "left").withColumn(CHANGE_TYPE, gone)
        come = F.when(F.col(ACTION) == INSERT, "insert").otherwise("update_postimage")
        # A new row is written twice: into the table, and into the feed.
        twice = F.explode(F.array(F.lit(None).cast("string"), come)).alias(CHANGE_TYPE)
        new = self._images(winners.where(F.col(ACTION) != DELETE), shape, twice)
        frame = self._images(old, shape, F.col(CHANGE_TYPE)).unionByName(new)
        self._table.commit(frame.coalesce(1), files, told)

    def _merge(self, winners: DataFrame, shape: Shape, told: Mapping[str, Any]) -> None:
        # Columns are named by backquoted paths because a name may hold dots and quotes.
        columns = schema_of(shape.columns).names
        values: dict[str, str | Column] = {_path(c): F.col(f"s.{_path(c)}") for c in columns}
        same_key = F.lit(True)
        for k in shape.identity:
            same_key &= F.col(f"t.{_path(k)}") == F.col(f"s.{_path(k)}")
        merge = (
            DeltaTable.forPath(self._telling(told), self.path)
            .alias("t")
            .merge(winners.alias("s"), same_key)
            .whenMatchedDelete(F.col(f"s.{ACTION}") == DELETE)
            .whenMatchedUpdate(set=values)
            .whenNotMatchedInsert(F.col(f"s.{ACTION}") != DELETE, values)
        )
        merge.execute()

    def _telling(self, told: Mapping[str, Any]) -> SparkSession:
        """A session like this one, whose commits say `told`: a MERGE takes that from nowhere else."""
        session = SparkSession(self._spark.sparkContext, self._spark._jsparkSession.cloneSession())
        session.conf.set("spark.databricks.delta.commitInfo.userMetadata", json.dumps(told))
        return session

    def note(self, told: Mapping[str, Any]) -> None:
        """A commit that changes nothing, and says so: what a batch without effect has to tell."""
        self._table.commit(None, (), told)

    def truncate(self, before: Column) -> None:
        """Removes every row whose position is below `before`, a `POSITION` struct."""
        self._table.delete(F.col(POSITION_COLUMN) < before)


def _with_file(rows: DataFrame) -> DataFrame:
    return rows.select("*", F.col("_metadata.file_name").alias(FILE))


def _path(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
