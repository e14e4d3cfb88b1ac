"""Silver: one Delta table per source table, its live rows and nothing else, for any Delta reader."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.change import (
    COLUMN_POSITIONS,
    COLUMN_POSITIONS_TYPE,
    LOCATION,
    POSITION_COLUMN,
    SOURCE_TS,
    quoted,
)
from ingest.changelog.evolution import TableColumn
from ingest.changelog.images import Shape, default_of
from ingest.changelog.merge import ACTION, DELETE, INSERT, UPDATE
from ingest.changelog.position import POSITION
from ingest.changelog.types import spark_type
from ingest.cut import cut
from ingest.errors import Contended
from ingest.names import identifier
from ingest.tables import delta_log, folding, page_index
from ingest.tables.data_file import DataFile
from ingest.tables.delta_log import CHANGE_TYPE

_PROPERTIES = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"}
_UNSORTED = (T.BooleanType, T.BinaryType, T.ArrayType, T.MapType, T.StructType)
"""Types of which Delta keeps no statistics, and refuses to be asked for them."""
_NEEDS_MAPPING = re.compile(r"[ ,;{}()\n\t=]")
_REWRITABLE = 1 << 20
"""Bytes of files that a commit may write anew: so small a table stays one file. Of more, rows are marked as gone."""
_ROWS_A_FILE = 500_000
_ROWS_A_TASK = 50_000


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


@dataclass(frozen=True)
class Writes:
    """States that take effect, with their `_action` and the `LOCATION` of the row that each replaces; the actions that
    are among them, the names of the files that hold those rows, and how many states there are."""

    states: DataFrame
    actions: frozenset[str]
    files: frozenset[str]
    rows: int


class Silver:
    """The silver table of one source table."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._cores = spark.sparkContext.defaultParallelism
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
        types = {c.name: spark_type(c.type) for c in shape.columns}
        keys = [identifier(k) for k in shape.key if not isinstance(types[k], _UNSORTED)]
        statistics = ",".join(keys) or f"{POSITION_COLUMN}.major"
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
        """The rows whose key is in `states`, with their `LOCATION`. The table must be there."""
        return page_index.matching(self._table, key, states, _location())

    def layered(self) -> DataFrame:
        """The rows of which some column is older than the row, with their `LOCATION`."""
        return self.located().where(F.col(COLUMN_POSITIONS).isNotNull())

    def located(self) -> DataFrame:
        """All rows, with their `LOCATION`."""
        return self._table.rows_in(self._table.files().values()).select("*", _location())

    def located_before(self, version: int) -> DataFrame | None:
        """All rows as they were before the commit `version`, with their `LOCATION`; None where it made the table."""
        rows = self._table.rows_before(version)
        return None if rows is None else rows.select("*", _location())

    def told(self) -> delta_log.Told | None:
        """What the last batch that was applied here says of itself."""
        return self._table.told()

    def apply(self, writes: Writes, shape: Shape, told: Mapping[str, Any]) -> None:
        """`told`: what the commit says of itself. One commit."""
        if self._mapped(shape) and not self.exists():
            self.create(shape)  # Delta refuses a first write that brings both mapping and a change data feed.
        touched = writes.files
        if not touched:
            self._table.commit(self._laid_out(writes, shape), told=told, new=self._properties(shape))
            return
        files = self._table.files()
        if not touched <= files.keys():
            raise Contended(
                f"another writer changed {self.path} while a batch was on its way into it",
                "run the same again: it goes on where it stood; one pipeline writes a table at a time",
            )
        rewritten = [files[name] for name in touched]
        if sum(f.size for f in rewritten) <= _REWRITABLE:
            self._rewrite(writes.states, shape, rewritten, told)
            return
        gone = writes.states.where(F.col(ACTION).isin(UPDATE, DELETE)).select(LOCATION)
        come = self._laid_out(writes, shape) if writes.actions & {INSERT, UPDATE} else None
        self._table.commit(come, without_rows=gone, told=told)

    def fold(self, shape: Shape) -> None:
        """Writes small files together, where it is time to: the rows stay what they are."""
        files = folding.due(self._table.files().values())
        if files:
            rows = self._images(self._table.rows_in(files), shape)
            self._table.rewrite(files, self._sorted(rows, shape, sum(f.rows - f.rows_gone for f in files)))

    def remove(self, states: DataFrame, shape: Shape, told: Mapping[str, Any]) -> None:
        """Takes away the rows of `states`, wherever they lie by now. One commit."""
        key = list(shape.identity)
        there = self.matching(states, key).select(*map(quoted, key), LOCATION)
        over = cut(states.drop(LOCATION).join(F.broadcast(there), key))
        by_file = over.groupBy(F.col(LOCATION)["file"].alias("file")).agg(F.count(F.lit(1)).alias("rows"))
        files = by_file.collect()  # a row per file
        gone = Writes(over, frozenset({DELETE}), frozenset(f["file"] for f in files), sum(f["rows"] for f in files))
        self.apply(gone, shape, told)

    def _laid_out(self, writes: Writes, shape: Shape) -> DataFrame:
        """The rows that come, sorted by key: a later batch finds its keys without reading the others."""
        return self._sorted(self._images(writes.states.where(F.col(ACTION) != DELETE), shape), shape, writes.rows)

    def _sorted(self, images: DataFrame, shape: Shape, rows: int) -> DataFrame:
        tasks = min(-(-rows // _ROWS_A_TASK), max(self._cores, -(-rows // _ROWS_A_FILE)))
        key = [quoted(k) for k in shape.key]
        spread = images.repartitionByRange(tasks, *key) if tasks > 1 and key else images.coalesce(max(tasks, 1))
        return spread.sortWithinPartitions(*key) if key else spread

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
        self._table.commit(frame.coalesce(1), files, told=told)

    def note(self, told: Mapping[str, Any]) -> None:
        """A commit that changes nothing, and says so: what a batch without effect has to tell."""
        self._table.commit(None, told=told)

    def truncate(self, before: Column) -> None:
        """Removes every row whose position is below `before`, a `POSITION` struct."""
        self._table.delete(F.col(POSITION_COLUMN) < before)


def _location() -> Column:
    at = F.struct(F.col("_metadata.file_name").alias("file"), F.col("_metadata.row_index").alias("row"))
    return at.alias(LOCATION)
