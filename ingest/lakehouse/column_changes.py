"""Converts stored rows to the columns of a changed table schema."""

from __future__ import annotations

from pyspark.sql import DataFrame

from ingest.changelog.change import quoted
from ingest.merge.image_columns import default_value
from ingest.merge.table_schema import TableSchema
from ingest.values.conversion import converted
from ingest.values.types import spark_type


def converted_rows(rows: DataFrame, before: TableSchema, after: TableSchema) -> DataFrame:
    """Returns rows whose values of changed columns are converted to the new type."""
    old, stored = {c.name: c.type for c in before.columns}, {f.name: f.dataType for f in rows.schema}
    # If an earlier run died after this, the stored type is the new one already.
    changed = [c for c in after.columns if c.name in old and stored.get(c.name) == spark_type(old[c.name])]
    return rows.withColumns({c.name: converted(quoted(c.name), old[c.name], c.type) for c in changed})


def with_defaults(rows: DataFrame, table_schema: TableSchema) -> DataFrame:
    """Returns rows with all columns of `table_schema`: a missing one has its default, or null."""
    present = set(rows.columns)
    return rows.withColumns({c.name: default_value(c) for c in table_schema.columns if c.name not in present})
