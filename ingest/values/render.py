"""Renders values of silver as plain JSON: numbers stay numbers, types that JSON lacks become text.

Decimals keep their declared scale. Dates, times and timestamps are ISO 8601, with a sign for years beyond 0000..9999.
Bytes are base64. NaN, Infinity and -Infinity (quoted by Spark's `to_json`) and infinite timestamps are text.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from ingest.values.temporal import instant
from ingest.values.types import INFINITY_MICROS, MINUS_INFINITY_MICROS, Kind, LogicalType, spark_type

LOSSLESS_JSON = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "ignoreNullFields": "false",
}
"""Options of `to_json` and `from_json` for a lossless round trip."""


def json_object(values: Mapping[str, SparkColumn]) -> SparkColumn:
    """Returns the JSON text of an object of rendered values, nulls included, in the given order."""
    fields = [value.alias(name) for name, value in values.items()]
    return F.to_json(F.struct(*fields), {"ignoreNullFields": "false"}) if fields else F.lit("{}")


def rendered(value: SparkColumn, logical_type: LogicalType) -> SparkColumn:
    """Returns `value`, a `spark_type(logical_type)`, as a column whose `to_json` is the plain JSON value."""
    match logical_type.kind:
        case Kind.DECIMAL | Kind.DATE:
            return value.cast("string")
        case Kind.BYTES:
            return F.base64(value)
        case Kind.TIMESTAMP | Kind.TIMESTAMP_TZ:
            return _timestamp(value, logical_type)
        case Kind.ARRAY | Kind.MAP | Kind.STRUCT:
            return _nested(value, logical_type)
        case _:
            return value


def _timestamp(value: SparkColumn, logical_type: LogicalType) -> SparkColumn:
    stored = spark_type(logical_type)
    zone = "Z" if logical_type.kind is Kind.TIMESTAMP_TZ else ""
    text = F.concat(F.translate(value.cast("string"), " ", "T"), F.lit(zone))
    return (
        F.when(value == instant(INFINITY_MICROS).cast(stored), F.lit("infinity"))
        .when(value == instant(MINUS_INFINITY_MICROS).cast(stored), F.lit("-infinity"))
        .otherwise(text)
    )


def _nested(value: SparkColumn, logical_type: LogicalType) -> SparkColumn:
    elements = logical_type.elements
    match logical_type.kind:
        case Kind.ARRAY:
            return F.transform(value, lambda element: rendered(element, elements[0]))
        case Kind.MAP:
            keyed = F.transform_keys(value, lambda key, _: rendered(key, elements[0]).cast("string"))
            return F.transform_values(keyed, lambda _, inner: rendered(inner, elements[1]))
        case _:
            fields = [
                rendered(value.getField(name), element).alias(name)
                for name, element in zip(logical_type.names, elements, strict=True)
            ]
            return F.when(value.isNotNull(), F.struct(*fields))
