"""The names of the columns in records' keys: the key by which the source tells the rows of a table apart."""

from __future__ import annotations

import json
from collections.abc import Collection

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from ingest.changelog.envelope import key_json
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


def _limited(keys: set[tuple[str, ...]]) -> Keys:
    return tuple(sorted(keys)) if len(keys) <= MOST_KEYS else None
