"""Compares records' keys, whatever form they were written in."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

RECORD_KEY = "_ingest_record_key"
_SCHEMA = '"schema"'


def record_key(key: Column) -> Column:
    """Returns a text that keys of the same names and values share: with Connect's schema around them or without, in
    any order of the names. A key that is no JSON is itself.

    `key`: the bytes of a record's key."""
    text = key.cast("string")
    # A VARIANT orders names, and keeps all digits of numbers.
    json = F.try_parse_json(text)
    inside = F.when(text.contains(_SCHEMA), F.try_variant_get(json, "$.payload", "variant"))
    return F.coalesce(F.to_json(F.coalesce(inside, json)), text)


def schema_of_key(key: Column) -> Column:
    """Returns the text of the schema that Connect has wrapped a record's key in; null without one."""
    text = key.cast("string")
    return F.when(text.contains(_SCHEMA), F.get_json_object(text, "$.schema"))
