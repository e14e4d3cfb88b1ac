"""Columns of events: decoded from the row image, with the names of those that are unavailable or can't be decoded."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from ingest.changelog.change import (
    COLUMN_POSITIONS,
    COLUMN_POSITIONS_TYPE,
    DELETED,
    POSITION_COLUMN,
)
from ingest.changelog.image_reader import ImageChoice, ImageReader, image, key_structs
from ingest.changelog.position import POSITION
from ingest.evolution.policies import TableColumn
from ingest.merge.image_values import default_value, is_undecodable, table_value
from ingest.merge.table_schema import TableSchema
from ingest.values.columns import Column
from ingest.values.unavailable import is_unavailable


def decoded_column(target: TableColumn, table_schema: TableSchema, reader: ImageReader) -> SparkColumn:
    """Returns a column of the table: from the main image, or the image before if it is unavailable there; for a key
    column also from the record's key; a default or null if the event lacks the column. Null for a delete, except for
    the key."""
    column = reader.by_name.get(target.name)
    if column is None:
        default = reader.lacking_by_name.get(target.name, target.filled)
        casts = reader.casts_by_name.get(target.name, ())
        return F.when(~F.col(DELETED), default_value(default, target, casts))
    main = reader.main_by_name[target.name]
    withheld, withheld_before = (F.col(flag) for flag in flag_names(target.name, reader))
    after = F.when(~withheld, table_value(image(reader.main, reader).getField(main.name), main, target, reader))
    if target.name not in table_schema.key:
        if reader.image_choice is ImageChoice.AFTER_OR_BEFORE:
            before = table_value(_before(reader).getField(column.name), column, target, reader)
            after = F.when(withheld, F.when(~withheld_before, before)).otherwise(after)
        return F.when(~F.col(DELETED), after)

    def read(struct: SparkColumn, name: str = column.name) -> SparkColumn:
        value = struct.getField(name)
        missing = is_unavailable(value, column.wire, reader.placeholder)
        return F.when(~missing, table_value(value, column, target, reader))

    keys = [reader.by_name[k] for k in table_schema.key if k in reader.by_name]
    from_key = F.coalesce(*(read(at) for at in key_structs("_ingest_k", keys)))
    if column.name != target.name:
        earlier = key_structs("_ingest_e", renamed_keys(table_schema, reader))
        from_key = F.coalesce(from_key, *(read(at, target.name) for at in earlier))
    from_before = F.coalesce(from_key, read(image("before", reader)))
    return F.when(F.col(DELETED), from_before).otherwise(F.coalesce(after, from_key))


def renamed_keys(table_schema: TableSchema, reader: ImageReader) -> list[Column]:
    """Returns the columns of the key that events call otherwise, under the names that the table has."""
    wire = reader.by_name
    return [replace(wire[k], name=k) for k in table_schema.key if k in wire and wire[k].name != k]


def lists_of_columns(table_schema: TableSchema, reader: ImageReader) -> dict[str, SparkColumn]:
    """Returns arrays of column names: `_ingest_unavailable`, `_ingest_before` (of these, available in the image
    before), `_ingest_broken` (value can't be decoded)."""
    columns = {c.name: c for c in table_schema.columns}
    partial, before, broken = [], [], []
    for name, c in reader.main_by_name.items():
        value = image(reader.main, reader).getField(c.name)
        withheld, withheld_before = (F.col(flag) for flag in flag_names(name, reader))
        broken.append(F.when(~withheld & is_undecodable(value, c, columns[name], reader), F.lit(_described(name, c))))
        if name in table_schema.key:
            continue  # A key column is taken from the record's key.
        partial.append(F.when(withheld, F.lit(name)))
        if reader.image_choice is ImageChoice.AFTER_OR_BEFORE:
            in_before = _before(reader).getField(c.name).isNotNull() & ~withheld_before
            before.append(F.when(withheld & in_before, F.lit(name)))

    def names(flags: list[SparkColumn]) -> SparkColumn:
        none = F.array().cast("array<string>")
        if not flags:
            return none
        # Not array_compact, for which Spark generates no code.
        entries = F.array_except(F.array(*flags), F.array(F.lit(None).cast("string")))
        # Almost always all flags are null: the array is built only where one is not.
        return F.when(~F.col(DELETED) & F.coalesce(*flags).isNotNull(), entries).otherwise(none)

    return {"_ingest_unavailable": names(partial), "_ingest_before": names(before), "_ingest_broken": names(broken)}


def _described(name: str, column: Column) -> str:
    """Returns the name of a column, with its types if it has a declared one."""
    if column.written is None:
        return name
    return f"{name} ({column.written} in the event, declared as {column.type})"


def column_positions(reader: ImageReader) -> SparkColumn:
    """Returns `_column_positions`: entries for the columns that the image lacks, from the image before or null."""
    no_told = F.lit(None).cast(POSITION).alias("told")
    before = F.struct(F.col(POSITION_COLUMN).alias("position"), F.lit(True).alias("before"), no_told)
    if reader.image_choice is ImageChoice.AFTER_OR_BEFORE:
        entries = F.transform(
            "_ingest_unavailable", lambda name: F.when(F.array_contains("_ingest_before", name), before)
        )
    else:  # No transform: Spark generates no code for it, nor for the expressions around it.
        entries = F.array_repeat(F.when(F.lit(False), before), F.size("_ingest_unavailable"))
    positions = F.map_from_arrays(F.col("_ingest_unavailable"), entries).cast(COLUMN_POSITIONS_TYPE)
    return F.when(F.size("_ingest_unavailable") > 0, positions).alias(COLUMN_POSITIONS)


def unavailable_flags(reader: ImageReader) -> dict[str, SparkColumn]:
    """Returns boolean columns by name, true for unavailable values, of the main image and of the image before.

    Computed as columns since several expressions use them, and generated code would repeat the comparison in each.
    """
    flags = {}
    for name, c in reader.main_by_name.items():
        main, before = flag_names(name, reader)
        flags[main] = is_unavailable(image(reader.main, reader).getField(c.name), c.wire, reader.placeholder)
        if reader.image_choice is ImageChoice.AFTER_OR_BEFORE:
            flags[before] = is_unavailable(_before(reader).getField(c.name), c.wire, reader.placeholder)
    return flags


def flag_names(name: str, reader: ImageReader) -> tuple[str, str]:
    """Returns the names of a column's two flags (`unavailable_flags`). They hold its number, since its name may be any
    text."""
    number = reader.numbers[name]
    return f"_ingest_withheld_{number}", f"_ingest_withheld_before_{number}"


def _before(reader: ImageReader) -> SparkColumn:
    return image("before", reader, "_ingest_b")
