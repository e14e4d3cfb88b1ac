"""Decryption of sealed columns for readers who have the master key."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.change import quoted
from ingest.evolution.policies import TableColumn
from ingest.merge.table_schema import TableSchema
from ingest.shredding.cipher import is_sealed, key_id_of, unseal
from ingest.shredding.data_keys import KEY, KEY_ID, DataKeys
from ingest.values.decode import decode
from ingest.values.types import spark_type
from ingest.values.wire_types import wire_spark_type


def decrypt_columns(rows: DataFrame, table_schema: TableSchema, sealed: frozenset[str], keys: DataKeys) -> DataFrame:
    """Returns `rows` of a table with the `sealed` columns decrypted and of their source types; null where the key was
    destroyed."""
    columns = {f"_ingest_{n}": c for n, c in enumerate(table_schema.columns) if c.name in sealed}
    if not columns:
        return rows
    ids = F.array_distinct(F.array(*(key_id_of(quoted(c.name)) for c in columns.values())))
    key_ids = rows.select(F.explode(F.array_compact(ids)).alias(KEY_ID)).distinct()
    keys_by_id = keys.by_id(key_ids).select(KEY_ID, KEY)
    for name, column in columns.items():
        column_keys = keys_by_id.select(F.col(KEY_ID).alias(f"{name}_id"), F.col(KEY).alias(f"{name}_key"))
        rows = rows.join(column_keys, key_id_of(quoted(column.name)) == F.col(f"{name}_id"), "left")
    rows = rows.withColumns(
        {name: _decrypted(c, table_schema.table, F.col(f"{name}_key")) for name, c in columns.items()}
    )
    values = {c.name: _typed(c, F.col(name)) for name, c in columns.items()}
    return rows.select(
        *(values[c.name].alias(c.name) if c.name in values else quoted(c.name) for c in table_schema.columns)
    )


def _decrypted(column: TableColumn, table: str, key: Column) -> Column:
    """Returns a struct with the `value` as the event carried it."""
    json = unseal(quoted(column.name), F.lit(table), F.lit(column.name), key)
    kind = T.StringType() if column.sealed is None else wire_spark_type(column.sealed.wire)
    return F.from_json(F.concat(F.lit('{"value":'), json, F.lit("}")), T.StructType([T.StructField("value", kind)]))


def _typed(column: TableColumn, decrypted: Column) -> Column:
    text, original = quoted(column.name), column.sealed
    value = decrypted["value"] if original is None else decode(decrypted["value"], original.wire, original.type)
    if original is not None and original.wire.elements:
        return value
    # Values written by an erasure's mask are not encrypted.
    plain = text if original is None else text.try_cast(spark_type(original.type))
    return F.when(is_sealed(text), value).otherwise(plain)
