"""Decodes events of one table and one schema to changes (`changelog.change`): typed columns, the key, refusals.

Every event yields at least one change. A change with a `_code` can't be applied; `_reason` says why, without a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, reduce

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.change import (
    COLUMN_POSITIONS,
    COLUMN_POSITIONS_TYPE,
    DELETED,
    EVENT_ID,
    NEW_KEY,
    POSITION_COLUMN,
    SOURCE_TS,
    quoted,
)
from ingest.changelog.envelope import key_json
from ingest.changelog.image_reader import ImageChoice, ImageReader, before_type, image, key_type, value_type
from ingest.changelog.position import POSITION
from ingest.changelog.projection import Projection
from ingest.changelog.refusal import refusal
from ingest.changelog.values.columns import Column
from ingest.changelog.values.decode import decode, is_unavailable, undecodable, wire_spark_type
from ingest.changelog.values.types import spark_type
from ingest.evolution.inference import are_whole, images, is_inexact
from ingest.evolution.policies import TableColumn
from ingest.merge.key_changes import new_key_text
from ingest.merge.moves import split_key_updates
from ingest.spark.plain_json import CORRUPT, WITHOUT_LIMITS, opened

_EVENT = ("topic", "partition", "offset", "op", "wrapped", "position", "source_ts")
"""Columns of an event that a change is built from, besides the JSON of key and value."""


@dataclass(frozen=True)
class TableSchema:
    """A table's name, key columns and columns. `key`: empty for a table of which every create is a row of its own."""

    table: str
    key: tuple[str, ...]
    columns: tuple[TableColumn, ...]

    @property
    def names(self) -> list[str]:
        return [c.name for c in self.columns]

    @property
    def identity(self) -> tuple[str, ...]:
        """Names the columns that identify a row: the key, or `_position` without one."""
        return self.key or (POSITION_COLUMN,)


def changes(events: DataFrame, table_schema: TableSchema, reader: ImageReader) -> DataFrame:
    """Returns the changes of `EVENT` rows. An update of the key yields its image and the delete of the old key."""
    frame = reduce(lambda rows, projection: projection.of(rows), _reading(table_schema, reader), events)
    return split_key_updates(frame, table_schema.key)


@lru_cache(maxsize=512)
def _reading(table_schema: TableSchema, reader: ImageReader) -> tuple[Projection, ...]:
    """Returns successive projections: parse the value, parse the key, decode the columns, find what can't be applied.

    Cached, since building them takes longer than a small batch.
    """
    reader = reader.for_key(table_schema.key)
    wire = reader.by_name
    unread = _unread(table_schema, reader)
    keys = _key_columns(table_schema, wire)
    olds = [f"_ingest_old_{i}" for i in range(len(keys))]
    columns = (
        *(_column(c, table_schema, reader).alias(c.name) for c in table_schema.columns),
        *(_old_key(wire[k], c, reader).alias(o) for o, (k, c) in zip(olds, keys, strict=True)),
        F.col(DELETED),
        F.col("position").alias(POSITION_COLUMN),
        F.col("source_ts").alias(SOURCE_TS),
        F.struct("topic", "partition", "offset").alias(EVENT_ID),
        _new_key(table_schema, reader).alias(NEW_KEY),
        (F.col("_ingest_doubtful") | F.col(f"_ingest_v.{CORRUPT}").isNotNull()).alias("_ingest_corrupt"),
        image(reader.main, reader).isNull().alias("_ingest_imageless"),
        _named_keys(table_schema, reader).alias("_ingest_named"),
        *(column.alias(name) for name, column in unread.items()),
    )
    kept = (*(c.name for c in table_schema.columns), *olds, DELETED, POSITION_COLUMN, SOURCE_TS, EVENT_ID, NEW_KEY)
    told = (*(quoted(c) for c in kept), _column_positions(reader), *refusal(table_schema.key, reader.main))
    return tuple(map(Projection, (*_opening(table_schema, reader), columns, told)))


def _opening(table_schema: TableSchema, reader: ImageReader) -> tuple[tuple[SparkColumn, ...], ...]:
    """Returns the projections that parse the JSON of the value (`_v`, `_b`, `_n`) and of the key (`_k`, `_e`)."""
    wire = reader.by_name
    keys = [wire[k] for k in table_schema.key if k in wire]
    value = F.col("value")
    also_before = reader.image_choice is ImageChoice.AFTER_OR_BEFORE
    deleted = F.lit(False) if reader.image_choice is ImageChoice.BEFORE else F.col("op").isin("d", "tombstone")
    kept = ("key", "value") if len(table_schema.key) > 1 else ("key",)
    of_value = (
        *_named(*_EVENT, *kept),
        opened(value, value_type(reader, keys), reader.parsed_before).alias("_ingest_v"),
        # Parsed separately: a corrupt image before is no reason to refuse the event.
        (opened(value, before_type(reader), reader.parsed_before) if also_before else F.lit(None)).alias("_ingest_b"),
        (F.from_json(new_key_text(), key_type(keys), WITHOUT_LIMITS) if reader.key_changes else F.lit(None)).alias(
            "_ingest_n"
        ),
        _doubtful(value, reader).alias("_ingest_doubtful"),
        deleted.alias(DELETED),
    )
    needed = F.when(_needs_key(table_schema, reader), F.col("key"))
    key = opened(needed, key_type(keys))
    # A null tombstone may have been written before its key was renamed to another case.
    own = [replace(wire[k], name=k) for k in table_schema.key if k in wire and wire[k].name != k]
    earlier = [opened(needed, key_type(own)).alias("_ingest_e")] if own else []
    flags = (flag.alias(name) for name, flag in _withheld(reader).items())
    read = (*kept, "_ingest_v", "_ingest_b", "_ingest_n", "_ingest_doubtful", DELETED)
    return of_value, (*_named(*_EVENT, *read), key.alias("_ingest_k"), *earlier, *flags)


def _doubtful(value: SparkColumn, reader: ImageReader) -> SparkColumn:
    """Returns true for a value without a schema that can't be read exactly: duplicate fields, or too long numbers."""
    twice = ~are_whole(images(value.cast("string"))) if reader.may_repeat_fields else F.lit(False)
    return twice | F.coalesce(is_inexact(value), F.lit(False)) if reader.long_numbers else twice


def _named(*names: str) -> tuple[SparkColumn, ...]:
    return tuple(map(F.col, names))


def _named_keys(table_schema: TableSchema, reader: ImageReader) -> SparkColumn:
    """Returns the names of the columns that occur in the record's key or in the row's image, where null is a value.

    Null if the table's key has a single column, or no key column is null.
    """
    wire = reader.main_by_name
    columns = [wire[k] for k in table_schema.key if k in wire]
    if len(table_schema.key) < 2 or not columns:
        return F.lit(None).cast("array<string>")
    none = F.array().cast("array<string>")
    shown = F.when(F.col(DELETED), _members("before")).otherwise(_members(reader.main))
    flags = {wire[k].name: F.col(_flags(k, reader)[0]) & ~F.col(DELETED) for k in table_schema.key if k in wire}
    withheld = F.array(*(F.when(flag, F.lit(name)) for name, flag in flags.items()))
    in_key = F.coalesce(F.json_object_keys(key_json(F.col("key"))), none)
    named = F.array_union(F.array_except(F.coalesce(shown, none), withheld), in_key)
    types = {c.name: c.type for c in table_schema.columns}
    # Decode first: the null of a column of any JSON is read as a VARIANT, which is not null.
    main = image(reader.main, reader)
    values = (decode(main.getField(wire[k].name), wire[k].wire, types[k]) for k in table_schema.key if k in wire)
    # A key column with only nulls in a batch may be missing from the inferred columns.
    unread = F.col(DELETED) | F.lit(len(columns) < len(table_schema.key))
    lacks = reduce(lambda one, other: one | other, (value.isNull() for value in values), unread)
    return F.when(lacks, F.transform(named, lambda name: _own_name(name, reader)) if reader.names else named)


def _own_name(name: SparkColumn, reader: ImageReader) -> SparkColumn:
    """Returns the table's name of a column of the event."""
    pairs = [F.lit(text) for pair in reader.names for text in pair]
    return F.coalesce(F.try_element_at(F.create_map(*pairs), name), name)


def _members(member: str) -> SparkColumn:
    """Returns the field names of an image, from the JSON of the value. `member`: "before" or "after"."""
    text = F.col("value").cast("string")
    inside = F.get_json_object(text, f"$.payload.{member}")
    return F.json_object_keys(F.when(F.col("wrapped"), inside).otherwise(F.get_json_object(text, f"$.{member}")))


def _needs_key(table_schema: TableSchema, reader: ImageReader) -> SparkColumn:
    """Returns true if the record's key has to be parsed: usually the image holds all key columns."""
    main = reader.main_by_name
    found = F.col(DELETED)
    for column in (main[k] for k in table_schema.key if k in main):
        value = image(reader.main, reader).getField(column.name)
        found |= value.isNull() | is_unavailable(value, column.wire, reader.placeholder)
    return found


def _new_key(table_schema: TableSchema, reader: ImageReader) -> SparkColumn:
    """Returns the struct `_new_key`: the key under which a deleted row continues; null if the event names none."""
    wire = reader.by_name
    types = T.StructType([T.StructField(k, spark_type(t.type)) for k, t in _key_columns(table_schema, wire)])
    if not reader.key_changes or len(types) < len(table_schema.key):
        return F.lit(None).cast(types)
    read = {
        k: F.coalesce(
            *(
                decode(at.getField(wire[k].name), wire[k].wire, t.type)
                for at in (F.col("_ingest_n"), F.col("_ingest_n.payload"))
            )
        )
        for k, t in _key_columns(table_schema, wire)
    }
    named = F.struct(*(value.alias(k) for k, value in read.items())).cast(types)
    # In a key of several columns a null is a value.
    told = F.coalesce(*(value.cast("string") for value in read.values())).isNotNull()
    return F.when(F.col(DELETED) & told, named)


def _column_positions(reader: ImageReader) -> SparkColumn:
    """Returns `_column_positions`: entries for the columns that the image lacks, from the image before or null."""
    nobody = F.lit(None).cast(POSITION).alias("told")
    before = F.struct(F.col(POSITION_COLUMN).alias("position"), F.lit(True).alias("before"), nobody)
    if reader.image_choice is ImageChoice.AFTER_OR_BEFORE:
        found = F.transform("_ingest_partial", lambda name: F.when(F.array_contains("_ingest_before", name), before))
    else:  # No transform: Spark generates no code for it, nor for the expressions around it.
        found = F.array_repeat(F.when(F.lit(False), before), F.size("_ingest_partial"))
    layers = F.map_from_arrays(F.col("_ingest_partial"), found).cast(COLUMN_POSITIONS_TYPE)
    return F.when(F.size("_ingest_partial") > 0, layers).alias(COLUMN_POSITIONS)


def _key_columns(table_schema: TableSchema, wire: Mapping[str, Column]) -> list[tuple[str, TableColumn]]:
    types = {c.name: c for c in table_schema.columns}
    return [(k, types[k]) for k in table_schema.key if k in wire]


def _old_key(column: Column, target: TableColumn, reader: ImageReader) -> SparkColumn:
    old = image("before", reader).getField(column.name)
    return F.when(F.col("op") == "u", decode(old, column.wire, target.type))


def _column(target: TableColumn, table_schema: TableSchema, reader: ImageReader) -> SparkColumn:
    column = reader.by_name.get(target.name)
    if column is None:
        return F.when(~F.col(DELETED), default_of(target))
    main = reader.main_by_name[target.name]
    withheld, withheld_before = (F.col(flag) for flag in _flags(target.name, reader))
    after = F.when(~withheld, decode(image(reader.main, reader).getField(main.name), main.wire, target.type))
    if target.name not in table_schema.key:
        if reader.image_choice is ImageChoice.AFTER_OR_BEFORE:
            before = decode(_before(reader).getField(column.name), column.wire, target.type)
            after = F.when(withheld, F.when(~withheld_before, before)).otherwise(after)
        return F.when(~F.col(DELETED), after)

    def read(struct: SparkColumn, name: str = column.name) -> SparkColumn:
        value = struct.getField(name)
        missing = is_unavailable(value, column.wire, reader.placeholder)
        return F.when(~missing, decode(value, column.wire, target.type))

    from_key = F.coalesce(read(F.col("_ingest_k")), read(F.col("_ingest_k.payload")))
    if column.name != target.name:
        from_key = F.coalesce(from_key, *(read(F.col(at), target.name) for at in ("_ingest_e", "_ingest_e.payload")))
    gone = F.coalesce(from_key, read(image("before", reader)))
    return F.when(F.col(DELETED), gone).otherwise(F.coalesce(after, from_key))


def _withheld(reader: ImageReader) -> dict[str, SparkColumn]:
    """Returns boolean columns by name, true for unavailable values, of the main image and of the image before.

    Computed as columns since several expressions use them, and generated code would repeat the comparison in each.
    """
    found = {}
    for name, c in reader.main_by_name.items():
        main, before = _flags(name, reader)
        found[main] = is_unavailable(image(reader.main, reader).getField(c.name), c.wire, reader.placeholder)
        if reader.image_choice is ImageChoice.AFTER_OR_BEFORE:
            found[before] = is_unavailable(_before(reader).getField(c.name), c.wire, reader.placeholder)
    return found


def _flags(name: str, reader: ImageReader) -> tuple[str, str]:
    """Returns the names of a column's two flags (`_withheld`). They hold its number, since its name may be any text."""
    number = reader.numbers[name]
    return f"_ingest_withheld_{number}", f"_ingest_withheld_before_{number}"


def _before(reader: ImageReader) -> SparkColumn:
    return image("before", reader, "_ingest_b")


def default_of(target: TableColumn) -> SparkColumn:
    """Returns the value of a column that an image lacks: the default in the source's schema, or null."""
    source = target.filled
    if source is None or source.default is None:
        return F.lit(None).cast(spark_type(target.type))
    wire = T.StructType([T.StructField("value", wire_spark_type(source.wire))])
    read = F.from_json(F.lit('{"value":' + source.default + "}"), wire, WITHOUT_LIMITS)
    return decode(read["value"], source.wire, target.type)


def _unread(table_schema: TableSchema, reader: ImageReader) -> dict[str, SparkColumn]:
    """Returns arrays of column names: `_partial` (value unavailable), `_before` (of these, available in the image
    before), `_broken` (value can't be decoded)."""
    types = {c.name: c.type for c in table_schema.columns}
    partial, before, broken = [], [], []
    for name, c in reader.main_by_name.items():
        value = image(reader.main, reader).getField(c.name)
        withheld, withheld_before = (F.col(flag) for flag in _flags(name, reader))
        broken.append(F.when(~withheld & undecodable(value, c.wire, types[name]), F.lit(name)))
        if name in table_schema.key:
            continue  # A key column is taken from the record's key.
        partial.append(F.when(withheld, F.lit(name)))
        if reader.image_choice is ImageChoice.AFTER_OR_BEFORE:
            held = _before(reader).getField(c.name).isNotNull() & ~withheld_before
            before.append(F.when(withheld & held, F.lit(name)))

    def names(flags: list[SparkColumn]) -> SparkColumn:
        none = F.array().cast("array<string>")
        if not flags:
            return none
        # Not array_compact, for which Spark generates no code.
        found = F.array_except(F.array(*flags), F.array(F.lit(None).cast("string")))
        # Almost always all flags are null: the array is built only where one is not.
        return F.when(~F.col(DELETED) & F.coalesce(*flags).isNotNull(), found).otherwise(none)

    return {"_ingest_partial": names(partial), "_ingest_before": names(before), "_ingest_broken": names(broken)}
