"""Key references of a row or an event: its own keys, and those that its foreign keys hold on the way to its subject."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.change import quoted
from ingest.merge.table_schema import TableSchema
from ingest.suppression.key_file import LedgerKeys
from ingest.suppression.keyed_hash import INNER, OUTER, key_text, keyed_hash_column
from ingest.suppression.subjects import Subjects
from ingest.values.types import spark_type

OWN_KEYS, REFERENCES = "_ingest_own_keys", "_ingest_references"
"""Array columns: the row's own keys; its own keys and all that its foreign keys hold."""
MOVED_FROM, LINKS = "_ingest_moved_from", "_ingest_links"
"""Array columns of events: the key from which the row moves to another one, if it does; what the foreign keys of its
image after the event hold."""
KEY_HASH = "key_hash"
_REFERENCES = T.ArrayType(T.StructType([T.StructField("table", T.StringType()), T.StructField("text", T.StringType())]))


def no_references() -> Column:
    """Returns an empty array of references."""
    return F.array().cast(_REFERENCES)


def own_keys(table_schema: TableSchema, key: Sequence[Column] | None = None) -> Column:
    """Returns the row's key as an array of references; empty if the table has no key or a part of it is null. `key`:
    columns to read in place of the table's."""
    types = _column_types(table_schema)
    values = [quoted(k) for k in table_schema.key] if key is None else key
    if not table_schema.key:
        return no_references()
    text = key_text([(value, types[k]) for value, k in zip(values, table_schema.key, strict=True)])
    return _non_null(F.array(_reference(table_schema.table, text)))


def foreign_keys(table_schema: TableSchema, subjects: Subjects) -> Column:
    """Returns the keys that the row's foreign keys hold, as an array of references."""
    types = _column_types(table_schema)
    links = {c: parent for c, parent in subjects.links.get(table_schema.table, {}).items() if c in types}
    references = [_reference(parent, key_text([(quoted(c), types[c])])) for c, parent in links.items()]
    return _non_null(F.array(*references)) if references else no_references()


def with_key_hashes(rows: DataFrame, keys: LedgerKeys, version: int) -> DataFrame:
    """Replaces the references in `OWN_KEYS`, `REFERENCES` and, of events, `MOVED_FROM` and `LINKS` by their keyed
    hashes."""
    secret = F.broadcast(keys.blocks(rows.sparkSession, version))

    def hashes(name: str) -> Column:
        return F.transform(name, lambda m: keyed_hash_column(m["table"], m["text"]))

    hashed = {name: hashes(name) for name in (OWN_KEYS, REFERENCES, MOVED_FROM, LINKS) if name in rows.columns}
    return rows.crossJoin(secret).withColumns(hashed).drop(INNER, OUTER)


def rows_referencing(rows: DataFrame, keys: DataFrame) -> DataFrame:
    """Returns the rows (with hashes) that reference one of `keys` (`request`, `KEY_HASH`): once per request, with its
    `request`."""
    exploded = rows.withColumn(KEY_HASH, F.explode(REFERENCES))
    return exploded.join(keys.select("request", KEY_HASH), KEY_HASH).drop(KEY_HASH)


def _column_types(table_schema: TableSchema) -> dict[str, T.DataType]:
    return {c.name: spark_type(c.type) for c in table_schema.columns}


def _reference(table: str, text: Column) -> Column:
    return F.struct(F.lit(table).alias("table"), text.alias("text"))


def _non_null(references: Column) -> Column:
    return F.filter(references, lambda m: m["text"].isNotNull()).cast(_REFERENCES)
