"""Which keys a row or an event names: its own, and by foreign keys those of the rows that lead to its subject."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.change import quoted
from ingest.changelog.values.types import spark_type
from ingest.merge.images import Shape
from ingest.suppression.key_file import LedgerKeys
from ingest.suppression.keyed_hash import INNER, OUTER, hashed, key_text
from ingest.suppression.subjects import Subjects

OWN, NAMED = "_own", "_named"
"""Arrays: the row's own keys; these and all that its foreign keys hold."""
KEY_HASH = "key_hash"
_MENTION = T.ArrayType(T.StructType([T.StructField("table", T.StringType()), T.StructField("text", T.StringType())]))


def own(shape: Shape, key: Sequence[Column] | None = None) -> Column:
    """A row's key as mentions, none where it has no key or it is null. `key`: in place of the table's columns."""
    types = _types(shape)
    values = [quoted(k) for k in shape.key] if key is None else key
    if not shape.key:
        return F.array().cast(_MENTION)
    text = key_text([(value, types[k]) for value, k in zip(values, shape.key, strict=True)])
    return _present(F.array(_mention(shape.table, text)))


def led(shape: Shape, subjects: Subjects) -> Column:
    """What a row's foreign keys hold, as mentions."""
    types = _types(shape)
    links = {c: parent for c, parent in subjects.links.get(shape.table, {}).items() if c in types}
    found = [_mention(parent, key_text([(quoted(c), types[c])])) for c, parent in links.items()]
    return _present(F.array(*found)) if found else F.array().cast(_MENTION)


def with_hashes(rows: DataFrame, keys: LedgerKeys, version: int) -> DataFrame:
    """Mentions in `OWN` and `NAMED` become keyed hashes."""
    secret = F.broadcast(keys.blocks(rows.sparkSession, version))

    def hashes(name: str) -> Column:
        return F.transform(name, lambda m: hashed(m["table"], m["text"]))

    both = {name: hashes(name) for name in (OWN, NAMED)}
    return rows.crossJoin(secret).withColumns(both).drop(INNER, OUTER)


def naming(rows: DataFrame, keys: DataFrame) -> DataFrame:
    """The rows with hashes that name one of `keys` (`request` and `KEY_HASH`), once for each request."""
    named = rows.withColumn(KEY_HASH, F.explode(NAMED))
    return named.join(keys.select("request", KEY_HASH), KEY_HASH).drop(KEY_HASH)


def _types(shape: Shape) -> dict[str, T.DataType]:
    return {c.name: spark_type(c.type) for c in shape.columns}


def _mention(table: str, text: Column) -> Column:
    return F.struct(F.lit(table).alias("table"), text.alias("text"))


def _present(mentions: Column) -> Column:
    return F.filter(mentions, lambda m: m["text"].isNotNull()).cast(_MENTION)
