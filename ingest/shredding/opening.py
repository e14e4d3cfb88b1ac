"""Rows in clear: what whoever has the master key reads in place of sealed text."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.change import quoted
from ingest.changelog.values.decode import decode, wire_spark_type
from ingest.changelog.values.types import spark_type
from ingest.evolution.policies import TableColumn
from ingest.merge.images import Shape
from ingest.shredding.cipher import is_sealed, key_id_of, opened
from ingest.shredding.data_keys import KEY, KEY_ID, DataKeys


def in_clear(rows: DataFrame, shape: Shape, sealed: frozenset[str], keys: DataKeys) -> DataFrame:
    """`rows` of a table, its `sealed` columns decrypted and of the types of their source; null where the key was
    destroyed."""
    columns = {f"_{n}": c for n, c in enumerate(shape.columns) if c.name in sealed}
    if not columns:
        return rows
    ids = F.array_distinct(F.array(*(key_id_of(quoted(c.name)) for c in columns.values())))
    wanted = rows.select(F.explode(F.array_compact(ids)).alias(KEY_ID)).distinct()
    found = keys.by_id(wanted).select(KEY_ID, KEY)
    for name, column in columns.items():
        mine = found.select(F.col(KEY_ID).alias(f"_id{name}"), F.col(KEY).alias(f"_key{name}"))
        rows = rows.join(mine, key_id_of(quoted(column.name)) == F.col(f"_id{name}"), "left")
    rows = rows.withColumns({name: _read(c, shape.table, F.col(f"_key{name}")) for name, c in columns.items()})
    told = {c.name: _clear(c, F.col(name)) for name, c in columns.items()}
    return rows.select(*(told[c.name].alias(c.name) if c.name in told else quoted(c.name) for c in shape.columns))


def _read(column: TableColumn, table: str, key: Column) -> Column:
    """A struct of the `value`, as the event held it."""
    json = opened(quoted(column.name), F.lit(table), F.lit(column.name), key)
    kind = T.StringType() if column.sealed is None else wire_spark_type(column.sealed.wire)
    return F.from_json(F.concat(F.lit('{"value":'), json, F.lit("}")), T.StructType([T.StructField("value", kind)]))


def _clear(column: TableColumn, read: Column) -> Column:
    text, was = quoted(column.name), column.sealed
    value = read["value"] if was is None else decode(read["value"], was.wire, was.type)
    if was is not None and was.wire.elements:
        return value
    # What an erasure has put there in place of a value was never encrypted.
    plain = text if was is None else text.try_cast(spark_type(was.type))
    return F.when(is_sealed(text), value).otherwise(plain)
