"""The rows of a silver table's new files, made of a changeset's states and, if files are rewritten, of their old
rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.change import quoted
from ingest.delta.delta_table import CHANGE_TYPE
from ingest.jvm.projection import Projection
from ingest.lakehouse.file_layout import laid_out
from ingest.merge.actions import ACTION, DELETE, INSERT, UPDATE
from ingest.merge.key_join import joined_by_key
from ingest.merge.table_schema import TableSchema
from ingest.values.types import spark_type


@dataclass(frozen=True)
class SilverRows:
    """Lays out the rows of a table. `system_columns`: columns besides the table's own. `version_columns`: those of them
    that distinguish rows of one key."""

    table_schema: TableSchema
    system_columns: T.StructType
    version_columns: tuple[str, ...]

    @property
    def schema(self) -> T.StructType:
        """Returns the table's columns with their logical types, then the system columns."""
        return T.StructType(
            [*(T.StructField(c.name, spark_type(c.type)) for c in self.table_schema.columns), *self.system_columns]
        )

    def new_rows(self, files: int, parts: int | None, states: DataFrame) -> DataFrame:
        """Returns the rows to add, in at most `files` sorted partitions. `parts`: as in `RowChanges`."""
        return self.laid_out(states.where(F.col(ACTION) != DELETE), files, parts)

    def laid_out(self, rows: DataFrame, files: int, parts: int | None = None) -> DataFrame:
        """Returns `rows` with the table's columns, in at most `files` sorted partitions."""
        return laid_out(_columns(self).of(rows), self.table_schema.key, files, parts)

    def rewritten(self, is_small: bool, states: DataFrame, old: DataFrame) -> DataFrame:
        """Returns the rows of rewritten files, with the states applied, in one partition, and the entries of the change
        data feed (with `CHANGE_TYPE`). `old`: the rows of those files. `is_small`: the states are few."""
        key = [*self.table_schema.identity, *self.version_columns]
        replaced = states.select(*(quoted(k) for k in key), ACTION)
        old_type = F.when(F.col(ACTION) == DELETE, "delete").when(F.col(ACTION) == UPDATE, "update_preimage")
        replaced = replaced.hint("shuffle_hash" if is_small else "broadcast")
        old = joined_by_key(old, replaced, key, "left").withColumn(CHANGE_TYPE, old_type)
        new_type = F.when(F.col(ACTION) == INSERT, "insert").otherwise("update_postimage")
        # A new row is written twice: into the table, and into the feed.
        twice = F.explode(F.array(F.lit(None).cast("string"), new_type)).alias(CHANGE_TYPE)
        new = self._images(states.where(F.col(ACTION) != DELETE), (twice,))
        return self._images(old, (F.col(CHANGE_TYPE),)).unionByName(new).coalesce(1)

    def _images(self, rows: DataFrame, more: Sequence[Column]) -> DataFrame:
        return rows.select(*_columns(self).columns, *more)


@lru_cache(maxsize=512)
def _columns(rows: SilverRows) -> Projection:
    return Projection([quoted(f.name).cast(f.dataType).alias(f.name) for f in rows.schema.fields])
