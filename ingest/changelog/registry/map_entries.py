"""Maps whose keys are no strings: Avro holds them as arrays of records `key`, `value`, Connect's JsonConverter writes
arrays of pairs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F


def with_pairs(row: Column, schema: Mapping[str, Any]) -> Column:
    """Returns a value with its maps of entries as arrays of pairs; itself if it has none. `schema`: Connect's."""
    return _converted(row, schema) if _has_entries(schema) else row


def _is_entries(schema: Mapping[str, Any]) -> bool:
    return bool(schema["type"] == "map" and schema["keys"]["type"] != "string")


def _has_entries(schema: Mapping[str, Any]) -> bool:
    inside = [schema[name] for name in ("items", "values") if name in schema]
    return _is_entries(schema) or any(map(_has_entries, (*inside, *schema.get("fields", ()))))


def _converted(value: Column, schema: Mapping[str, Any]) -> Column:
    if not _has_entries(schema):
        return value
    if schema["type"] == "array":
        return F.transform(value, lambda one: _converted(one, schema["items"]))
    if schema["type"] == "struct":
        fields = (_converted(value[one["field"]], one).alias(one["field"]) for one in schema["fields"])
        return F.when(value.isNotNull(), F.struct(*fields))
    if not _is_entries(schema):
        return F.transform_values(value, lambda _, one: _converted(one, schema["values"]))

    def pair(entry: Column) -> Column:
        parts = (_json(_converted(entry[name], schema[f"{name}s"])) for name in ("key", "value"))
        return F.concat(F.lit("["), F.concat_ws(",", *parts), F.lit("]"))

    pairs = F.array_join(F.transform(value, pair), ",")
    return F.when(value.isNotNull(), F.parse_json(F.concat(F.lit("["), pairs, F.lit("]"))))


def _json(value: Column) -> Column:
    """Returns the JSON text of any value."""
    text = F.to_json(F.array(value), {"ignoreNullFields": "false"})
    return F.substring(text, F.lit(2), F.length(text) - 2)
