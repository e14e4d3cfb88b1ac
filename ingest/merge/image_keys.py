"""Key columns of events: read from the row image, or from the record's key where the image lacks them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.change import (
    DELETED,
)
from ingest.changelog.envelope import key_json
from ingest.changelog.image_reader import ImageReader, image, key_structs
from ingest.evolution.policies import TableColumn
from ingest.merge.image_columns import flag_names
from ingest.merge.image_values import table_value
from ingest.merge.table_schema import TableSchema
from ingest.values.columns import Column
from ingest.values.types import spark_type
from ingest.values.unavailable import is_unavailable


def named_key_columns(table_schema: TableSchema, reader: ImageReader) -> SparkColumn:
    """Returns the names of the columns that occur in the record's key or in the row's image, where null is a value.

    Null if the table's key has a single column, or no key column is null.
    """
    wire = reader.main_by_name
    columns = [wire[k] for k in table_schema.key if k in wire]
    if len(table_schema.key) < 2 or not columns:
        return F.lit(None).cast("array<string>")
    none = F.array().cast("array<string>")
    image_names = F.when(F.col(DELETED), _field_names("before")).otherwise(_field_names(reader.main))
    flags = {wire[k].name: F.col(flag_names(k, reader)[0]) & ~F.col(DELETED) for k in table_schema.key if k in wire}
    withheld = F.array(*(F.when(flag, F.lit(name)) for name, flag in flags.items()))
    in_key = F.coalesce(F.json_object_keys(key_json(F.col("key"))), none)
    names = F.array_union(F.array_except(F.coalesce(image_names, none), withheld), in_key)
    targets = {c.name: c for c in table_schema.columns}
    # Decode first: the null of a column of any JSON is read as a VARIANT, which is not null.
    main = image(reader.main, reader)
    keys = (k for k in table_schema.key if k in wire)
    values = (table_value(main.getField(wire[k].name), wire[k], targets[k], reader) for k in keys)
    # A key column with only nulls in a batch may be missing from the inferred columns.
    unread = F.col(DELETED) | F.lit(len(columns) < len(table_schema.key))
    lacks = reduce(lambda one, other: one | other, (value.isNull() for value in values), unread)
    return F.when(lacks, F.transform(names, lambda name: _table_name(name, reader)) if reader.names else names)


def _table_name(name: SparkColumn, reader: ImageReader) -> SparkColumn:
    """Returns the table's name of a column of the event."""
    pairs = [F.lit(text) for pair in reader.names for text in pair]
    return F.coalesce(F.try_element_at(F.create_map(*pairs), name), name)


def _field_names(member: str) -> SparkColumn:
    """Returns the field names of an image, from the JSON of the value. `member`: "before" or "after"."""
    text = F.col("value").cast("string")
    inside = F.get_json_object(text, f"$.payload.{member}")
    return F.json_object_keys(F.when(F.col("wrapped"), inside).otherwise(F.get_json_object(text, f"$.{member}")))


def needs_key(table_schema: TableSchema, reader: ImageReader) -> SparkColumn:
    """Returns true if the record's key has to be parsed: usually the image holds all key columns."""
    main = reader.main_by_name
    found = F.col(DELETED)
    for column in (main[k] for k in table_schema.key if k in main):
        value = image(reader.main, reader).getField(column.name)
        found |= value.isNull() | is_unavailable(value, column.wire, reader.placeholder)
    return found


def new_key(table_schema: TableSchema, reader: ImageReader) -> SparkColumn:
    """Returns the struct `_ingest_new_key`: the key under which a deleted row continues; null if the event names
    none."""
    wire = reader.by_name
    targets = {c.name: c for c in table_schema.columns}
    # The same for all readers of a table, also one of events that lack a column of the key.
    types = T.StructType([T.StructField(k, spark_type(targets[k].type)) for k in table_schema.key])
    if not reader.key_changes or not {*table_schema.key} <= wire.keys():
        return F.lit(None).cast(types)
    values = {
        k: F.coalesce(
            *(
                table_value(at.getField(wire[k].name), wire[k], t, reader)
                for at in key_structs("_ingest_n", [wire[name] for name, _ in key_columns(table_schema, wire)])
            )
        )
        for k, t in key_columns(table_schema, wire)
    }
    key = F.struct(*(value.alias(k) for k, value in values.items())).cast(types)
    # In a key of several columns a null is a value.
    is_named = F.coalesce(*(value.cast("string") for value in values.values())).isNotNull()
    return F.when(F.col(DELETED) & is_named, key)


def key_columns(table_schema: TableSchema, wire: Mapping[str, Column]) -> list[tuple[str, TableColumn]]:
    """Returns the key columns that events have, in the order of the key."""
    types = {c.name: c for c in table_schema.columns}
    return [(k, types[k]) for k in table_schema.key if k in wire]


def old_key(column: Column, target: TableColumn, reader: ImageReader) -> SparkColumn:
    """Returns a key column of the image before of an update; null for other events."""
    old = image("before", reader).getField(column.name)
    return F.when(F.col("op") == "u", table_value(old, column, target, reader))
