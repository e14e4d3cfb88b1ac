"""The rows of a silver table's files, as they are made of a verdict's states and, where a file is written anew, of its
old rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.change import quoted
from ingest.changelog.projection import Projection
from ingest.changelog.values.types import spark_type
from ingest.delta.delta_table import CHANGE_TYPE
from ingest.lakehouse.file_layout import laid_out
from ingest.merge.actions import ACTION, DELETE, INSERT, UPDATE
from ingest.merge.images import TableSchema
from ingest.merge.key_join import joined_by_key


@dataclass(frozen=True)
class SilverRows:
    """Of a table of this shape. `beside`: what a row holds beside the table's columns; `apart`: which of these tell
    rows of one key apart."""

    table_schema: TableSchema
    system_columns: T.StructType
    version_columns: tuple[str, ...]

    @property
    def schema(self) -> T.StructType:
        """The columns by their logical types, then those beside."""
        return T.StructType(
            [*(T.StructField(c.name, spark_type(c.type)) for c in self.table_schema.columns), *self.system_columns]
        )

    def come(self, files: int, parts: int | None, states: DataFrame) -> DataFrame:
        """Those that come, for so many new files. `parts`: as `Writes` has it."""
        return self.laid_out(states.where(F.col(ACTION) != DELETE), files, parts)

    def laid_out(self, rows: DataFrame, files: int, parts: int | None = None) -> DataFrame:
        """These rows, for so many files."""
        return laid_out(_columns(self).of(rows), self.table_schema.key, files, parts)

    def rewritten(self, few: bool, states: DataFrame, old: DataFrame) -> DataFrame:
        """The rows of old files and those that come, for one new file; and what changed, for the change data feed.
        `few`: so are the states."""
        key = [*self.table_schema.identity, *self.version_columns]
        taken = states.select(*(quoted(k) for k in key), ACTION)
        gone = F.when(F.col(ACTION) == DELETE, "delete").when(F.col(ACTION) == UPDATE, "update_preimage")
        taken = taken.hint("shuffle_hash" if few else "broadcast")
        there = joined_by_key(old, taken, key, "left").withColumn(CHANGE_TYPE, gone)
        come = F.when(F.col(ACTION) == INSERT, "insert").otherwise("update_postimage")
        # A new row is written twice: into the table, and into the feed.
        twice = F.explode(F.array(F.lit(None).cast("string"), come)).alias(CHANGE_TYPE)
        new = self._images(states.where(F.col(ACTION) != DELETE), (twice,))
        return self._images(there, (F.col(CHANGE_TYPE),)).unionByName(new).coalesce(1)

    def _images(self, rows: DataFrame, more: Sequence[Column]) -> DataFrame:
        return rows.select(*_columns(self).columns, *more)


@lru_cache(maxsize=512)
def _columns(rows: SilverRows) -> Projection:
    """The table's columns with their types."""
    return Projection([quoted(f.name).cast(f.dataType).alias(f.name) for f in rows.schema.fields])
