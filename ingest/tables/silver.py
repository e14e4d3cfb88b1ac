"""Silver: one Delta table per source table, its live rows and nothing else, for any Delta reader."""

from __future__ import annotations

import re
from collections.abc import Sequence

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.compaction import DELETED, POSITION_COLUMN, quoted
from ingest.changelog.evolution import TableColumn
from ingest.changelog.images import SOURCE_TS, Shape, default_of
from ingest.changelog.merge import ACTION, DELETE, INSERT, UPDATE
from ingest.changelog.position import POSITION
from ingest.changelog.types import spark_type
from ingest.tables import delta_log

# No deletion vectors: any reader reads such a table, and a small MERGE took a third of the time without them.
_PROPERTIES = {"delta.enableChangeDataFeed": "true", **delta_log.SELDOM_CHECKPOINTS}
_NEEDS_MAPPING = re.compile(r"[ ,;{}()\n\t=]")


def schema_of(columns: Sequence[TableColumn]) -> T.StructType:
    """The columns by their logical types, then the few that begin with `_`."""
    return T.StructType(
        [
            *(T.StructField(c.name, spark_type(c.type)) for c in columns),
            T.StructField(POSITION_COLUMN, POSITION),
            T.StructField(SOURCE_TS, T.TimestampType()),
        ]
    )


class Silver:
    """The silver table of one source table."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self.path = path

    def exists(self) -> bool:
        return delta_log.exists(self._spark, self.path)

    def rows(self) -> DataFrame:
        return self._spark.read.format("delta").load(self.path)

    @staticmethod
    def _mapped(shape: Shape) -> bool:
        """Parquet can't hold such a name; mapping shuts some readers out, so only these tables have it."""
        return any(_NEEDS_MAPPING.search(c.name) for c in shape.columns)

    def _properties(self, shape: Shape) -> dict[str, str]:
        return {**_PROPERTIES, "delta.columnMapping.mode": "name"} if self._mapped(shape) else _PROPERTIES

    def create(self, shape: Shape) -> None:
        """An empty table; one that is there already stays as it is."""
        delta_log.create(self._spark, self.path, schema_of(shape.columns), self._properties(shape))

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
        frame = rows.select(*columns, POSITION_COLUMN, SOURCE_TS)
        writer = frame.write.format("delta")
        if rewrite:
            writer.mode("overwrite").option("overwriteSchema", "true").save(self.path)
        else:
            writer.mode("append").option("mergeSchema", "true").save(self.path)

    def matching(self, states: DataFrame, key: Sequence[str]) -> DataFrame | None:
        """Key and position of the live rows whose key is in `states`; None while there is no table.

        The table is read once and not shuffled."""
        if not self.exists():
            return None
        wanted = states.select(*(quoted(c) for c in key))
        columns = list(dict.fromkeys([*key, POSITION_COLUMN]))
        return self.rows().select(*(quoted(c) for c in columns)).join(F.broadcast(wanted), list(key), "left_semi")

    def apply(self, winners: DataFrame, shape: Shape, only_inserts: bool) -> None:
        """`winners`: states that take effect, with their `_action`. One commit."""
        columns = schema_of(shape.columns).names
        writes = winners.where(F.col(ACTION).isin(INSERT, UPDATE, DELETE))
        if only_inserts:
            if self._mapped(shape) and not self.exists():
                self.create(shape)  # Delta refuses a first write that brings both mapping and a change data feed.
            options = {} if self.exists() else self._properties(shape)
            delta_log.append(writes.select(*(quoted(c) for c in columns)), self.path, **options)
            return
        # Columns are named by backquoted paths because a name may hold dots and quotes.
        values: dict[str, str | Column] = {_path(c): F.col(f"s.{_path(c)}") for c in columns}
        newer = F.col(f"s.{POSITION_COLUMN}") > F.col(f"t.{POSITION_COLUMN}")
        same_key = F.lit(True)
        for k in shape.identity:
            same_key &= F.col(f"t.{_path(k)}") == F.col(f"s.{_path(k)}")
        (
            DeltaTable.forPath(self._spark, self.path)
            .alias("t")
            .merge(writes.alias("s"), same_key)
            .whenMatchedDelete(F.col(f"s.{DELETED}"))
            .whenMatchedUpdate(newer, values)
            .whenNotMatchedInsert(~F.col(f"s.{DELETED}"), values)
            .execute()
        )

    def truncate(self, before: Column) -> None:
        """Removes every row whose position is below `before`, a `POSITION` struct."""
        DeltaTable.forPath(self._spark, self.path).delete(F.col(POSITION_COLUMN) < before)


def _path(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
