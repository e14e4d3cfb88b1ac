"""Decodes events of one table and one schema to changes (`changelog.change`): typed columns, the key, refusals.

Every event yields at least one change. A change with a `_ingest_code` can't be applied; `_ingest_reason` says why,
without a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, reduce

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ingest.changelog.change import (
    DELETED,
    EVENT_ID,
    NEW_KEY,
    POSITION_COLUMN,
    SOURCE_TS,
    quoted,
)
from ingest.changelog.envelope import key_json
from ingest.changelog.image_reader import (
    ImageChoice,
    ImageReader,
    before_type,
    has_payload,
    image,
    key_type,
    value_type,
)
from ingest.changelog.refusal import refusal
from ingest.evolution.inferred.inference import are_parsed, is_inexact, parsed_images
from ingest.evolution.policies import TableColumn
from ingest.jvm.plain_json import CORRUPT, WITHOUT_LIMITS, opened
from ingest.jvm.projection import Projection
from ingest.merge.image_columns import (
    column_positions,
    decoded_column,
    lists_of_columns,
    renamed_keys,
    unavailable_flags,
)
from ingest.merge.image_keys import key_columns, named_key_columns, needs_key, new_key, old_key
from ingest.merge.key_changes import new_key_text
from ingest.merge.moves import split_key_updates
from ingest.merge.table_schema import TableSchema
from ingest.values.columns import Column

_EVENT = ("topic", "partition", "offset", "op", "wrapped", "position", "source_ts")
"""Columns of an event that a change is built from, besides the JSON of key and value."""


def changes(events: DataFrame, table_schema: TableSchema, reader: ImageReader) -> DataFrame:
    """Returns the changes of `EVENT` rows. An update of the key yields its image and the delete of the old key."""
    projections = _projections(table_schema.key, table_schema.columns, reader)
    frame = reduce(lambda rows, projection: projection.of(rows), projections, events)
    return split_key_updates(frame, table_schema.key)


@lru_cache(maxsize=512)
def _projections(
    key: tuple[str, ...], table_columns: tuple[TableColumn, ...], reader: ImageReader
) -> tuple[Projection, ...]:
    """Returns successive projections: parse the value, parse the key, decode the columns, find what can't be applied.

    Cached, since building them takes longer than a small batch; tables with the same columns share them.
    """
    table_schema, reader = TableSchema("", key, table_columns), reader.for_key(key)
    wire = reader.by_name
    column_lists = lists_of_columns(table_schema, reader)
    keys = key_columns(table_schema, wire)
    old_keys = [f"_ingest_old_{i}" for i in range(len(keys))]
    columns = (
        *(decoded_column(c, table_schema, reader).alias(c.name) for c in table_schema.columns),
        *(old_key(wire[k], c, reader).alias(o) for o, (k, c) in zip(old_keys, keys, strict=True)),
        F.col(DELETED),
        F.col("position").alias(POSITION_COLUMN),
        F.col("source_ts").alias(SOURCE_TS),
        F.struct("topic", "partition", "offset").alias(EVENT_ID),
        new_key(table_schema, reader).alias(NEW_KEY),
        (F.col("_ingest_doubtful") | F.col(f"_ingest_v.{CORRUPT}").isNotNull()).alias("_ingest_is_corrupt"),
        image(reader.main, reader).isNull().alias("_ingest_imageless"),
        named_key_columns(table_schema, reader).alias("_ingest_named"),
        *(column.alias(name) for name, column in column_lists.items()),
    )
    decoded = (
        *(c.name for c in table_schema.columns),
        *old_keys,
        DELETED,
        POSITION_COLUMN,
        SOURCE_TS,
        EVENT_ID,
        NEW_KEY,
    )
    change = (*(quoted(c) for c in decoded), column_positions(reader), *refusal(table_schema.key, reader.main))
    return tuple(map(Projection, (*_parsed(table_schema, reader), columns, change)))


def _parsed(table_schema: TableSchema, reader: ImageReader) -> tuple[tuple[SparkColumn, ...], ...]:
    """Returns the projections that parse the JSON of the value (`_ingest_v`, `_ingest_b`, `_ingest_n`) and of the key
    (`_ingest_k`, `_ingest_e`)."""
    wire = reader.by_name
    keys = [wire[k] for k in table_schema.key if k in wire]
    value = F.col("value")
    reads_before = reader.image_choice is ImageChoice.AFTER_OR_BEFORE
    deleted = F.lit(False) if reader.image_choice is ImageChoice.BEFORE else F.col("op").isin("d", "tombstone")
    key_and_value = ("key", "value") if len(table_schema.key) > 1 else ("key",)
    of_value = (
        *_columns(*_EVENT, *key_and_value),
        opened(value, value_type(reader, keys), reader.parsed_before).alias("_ingest_v"),
        # Parsed separately: a corrupt image before is no reason to refuse the event.
        (opened(value, before_type(reader), reader.parsed_before) if reads_before else F.lit(None)).alias("_ingest_b"),
        _new_key(keys).alias("_ingest_n") if reader.key_changes else F.lit(None).alias("_ingest_n"),
        _is_ambiguous(value, reader).alias("_ingest_doubtful"),
        deleted.alias(DELETED),
    )
    needed = F.when(needs_key(table_schema, reader), F.col("key"))
    key = _opened_key(needed, keys)
    # A null tombstone may have been written before its key was renamed to another case.
    renamed = renamed_keys(table_schema, reader)
    earlier = [_opened_key(needed, renamed).alias("_ingest_e")] if renamed else []
    flags = (flag.alias(name) for name, flag in unavailable_flags(reader).items())
    passed_on = (*key_and_value, "_ingest_v", "_ingest_b", "_ingest_n", "_ingest_doubtful", DELETED)
    return of_value, (*_columns(*_EVENT, *passed_on), key.alias("_ingest_k"), *earlier, *flags)


def _opened_key(key: SparkColumn, columns: Sequence[Column]) -> SparkColumn:
    """Returns a record's key, parsed for its `columns`."""
    return opened(key_json(key).cast("binary") if has_payload(columns) else key, key_type(columns))


def _new_key(columns: Sequence[Column]) -> SparkColumn:
    """Returns the key to which an event moves its row, parsed for its `columns`."""
    text = new_key_text()
    return F.from_json(key_json(text) if has_payload(columns) else text, key_type(columns), WITHOUT_LIMITS)


def _is_ambiguous(value: SparkColumn, reader: ImageReader) -> SparkColumn:
    """Returns true for a value without a schema that can't be read exactly: duplicate fields, or too long numbers."""
    twice = ~are_parsed(parsed_images(value.cast("string"))) if reader.may_repeat_fields else F.lit(False)
    return twice | F.coalesce(is_inexact(value), F.lit(False)) if reader.long_numbers else twice


def _columns(*names: str) -> tuple[SparkColumn, ...]:
    return tuple(map(F.col, names))
