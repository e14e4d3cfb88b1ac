"""Values of a row image as those of the table: decoded, then converted as the source has converted them since."""

from __future__ import annotations

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.image_reader import ImageReader
from ingest.evolution.policies import TableColumn
from ingest.jvm.plain_json import WITHOUT_LIMITS
from ingest.values.columns import Column
from ingest.values.decode import decode, undecodable
from ingest.values.exact_cast import exact_cast
from ingest.values.postgres_cast import Cast, converted_by
from ingest.values.types import spark_type
from ingest.values.wire_types import wire_spark_type


def table_value(value: SparkColumn, column: Column, target: TableColumn, reader: ImageReader) -> SparkColumn:
    """Returns a value of an image's column, read as its wire type, as one of the table's column; null if it can't be
    decoded, or if only the source knows what it has become."""
    casts = reader.casts_by_name.get(target.name, ())
    return _converted(value, column, target, casts)


def is_undecodable(value: SparkColumn, column: Column, target: TableColumn, reader: ImageReader) -> SparkColumn:
    """Returns true for a value other than null that can't be decoded. Never null."""
    if target.name in reader.unfit:
        return value.isNotNull()
    if column.is_cast:
        written = column.written or column.type
        is_lost = decode(value, column.wire, written).isNotNull() & _as_declared(value, column).isNull()
        return is_lost | undecodable(value, column.wire, written)
    is_cast = reader.casts_by_name.get(target.name, ()) != ()
    return undecodable(value, column.wire, column.type if is_cast else target.type)


def default_value(column: Column | None, target: TableColumn, casts: tuple[Cast, ...] | None = ()) -> SparkColumn:
    """Returns the default of a column of events as a value of the table's column; null without one. `casts`: the
    conversions that it has passed since; None if only the source knows the value."""
    if column is None or column.default is None:
        return F.lit(None).cast(spark_type(target.type))
    wire = T.StructType([T.StructField("value", wire_spark_type(column.wire))])
    parsed = F.from_json(F.lit('{"value":' + column.default + "}"), wire, WITHOUT_LIMITS)
    return _converted(parsed["value"], column, target, casts)


def _converted(value: SparkColumn, column: Column, target: TableColumn, casts: tuple[Cast, ...] | None) -> SparkColumn:
    if casts is None:
        return F.lit(None).cast(spark_type(target.type))
    if column.is_cast:
        return converted_by(_as_declared(value, column), casts)
    return converted_by(decode(value, column.wire, column.type if casts else target.type), casts)


def _as_declared(value: SparkColumn, column: Column) -> SparkColumn:
    """Returns a value in its declared type; null if it loses anything."""
    written = column.written or column.type
    return exact_cast(decode(value, column.wire, written), Cast(written, column.type))
