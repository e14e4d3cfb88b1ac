"""The names of the columns in records' keys: the key by which the source tells the rows of a table apart."""

from __future__ import annotations

import json
from collections.abc import Collection

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.changelog.envelope import CHANGES, key_json
from ingest.jvm.key_names import names_in_key

Keys = tuple[tuple[str, ...], ...] | None
"""Distinct keys, each by the names of its columns; () for records without a key. None where they are not known."""
MOST_KEYS = 32
"""More distinct keys of one table than this are data, not names of columns."""


def key_names(spark: SparkSession, key: Column) -> Column:
    """Returns the names of the columns in `key`, the bytes of a record's key, as a JSON array: `[]` for a null key.
    Null where a key names no columns: it is no JSON object, or an empty one."""
    found = names_in_key(spark, key)
    return _parsed_names(key) if found is None else found


def _parsed_names(key: Column) -> Column:
    is_json = F.try_parse_json(key.cast("string")).isNotNull()
    names = F.json_object_keys(F.when(is_json, key_json(key)))
    return F.when(key.isNull(), "[]").when(F.size(names) > 0, F.to_json(names))


def keys_of(names: Collection[str]) -> Keys:
    """Returns the keys that `key_names` gives; None if there are more than `MOST_KEYS`."""
    return _limited({tuple(json.loads(text)) for text in names})


def union_of_keys(one: Keys, other: Keys) -> Keys:
    """Returns the keys of two groups; None where those of either are not known."""
    return None if one is None or other is None else _limited({*one, *other})


def first_keys(events: DataFrame) -> dict[str, tuple[str, ...] | None]:
    """Returns table → the names of the columns in the first key of its changes; () where the change at the lowest
    position has no key; None where that key names no columns. `events`: rows of bronze."""
    key_text = key_json(F.col("key"))
    names = F.json_object_keys(F.when(F.try_parse_json(key_text).isNotNull(), key_text))
    # The first record in the transport: a later one may name fewer columns.
    at = F.when(F.col("key").isNotNull(), F.struct("offset", "topic", "partition"))
    begins_with_key = F.min_by(F.col("key").isNotNull(), "position").alias("begins_with_key")
    changed = events.where(F.col("op").isin(*CHANGES)).groupBy("source_table")
    first = changed.agg(F.min_by("key", at).alias("key"), begins_with_key)
    rows = first.select("source_table", "key", "begins_with_key", names.alias("names")).collect()  # a row per table
    keys: dict[str, tuple[str, ...] | None] = {}
    for row in rows:
        has_key = row["key"] is not None and row["begins_with_key"]
        # Without one now, the table goes on by a key that the source gives it later.
        keys[row["source_table"]] = (tuple(row["names"] or ()) or None) if has_key else ()
    return keys


def _limited(keys: set[tuple[str, ...]]) -> Keys:
    return tuple(sorted(keys)) if len(keys) <= MOST_KEYS else None
