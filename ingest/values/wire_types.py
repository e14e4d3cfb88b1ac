"""The Spark types by which `from_json` reads values of each encoding.

An encoding that `from_json` could misread silently is read as text or VARIANT, for `decode`.
"""

from __future__ import annotations

from pyspark.sql import types as spark

from ingest.values.columns import NUMBERS, Encoding, WireType
from ingest.values.types import FLOATS, LogicalType, spark_type


def wire_spark_type(wire: WireType) -> spark.DataType:
    """Returns the type for `from_json` of a value in this encoding."""
    elements = [wire_spark_type(element) for element in wire.elements]
    match wire.encoding:
        case Encoding.ARRAY:
            found: spark.DataType = spark.ArrayType(elements[0])
        case Encoding.MAP:
            found = spark.MapType(spark.StringType(), elements[1])
        case Encoding.MAP_ENTRIES:
            found = spark.ArrayType(spark.ArrayType(spark.VariantType()))
        case Encoding.STRUCT:
            fields = zip(wire.names, elements, strict=True)
            found = spark.StructType([spark.StructField(name, element) for name, element in fields])
        case _:
            found = _scalar_spark_type(wire)
    return found


def _scalar_spark_type(wire: WireType) -> spark.DataType:
    match wire.encoding:
        case Encoding.DECIMAL_UNSCALED | Encoding.DECIMAL_PLAIN | Encoding.JSON_VALUE:
            return spark.VariantType()
        case Encoding.DECIMAL_VARIABLE:
            return spark.StructType().add("scale", spark.IntegerType()).add("value", spark.StringType())
        case Encoding.NUMBER if wire.checked and wire.number in FLOATS:
            return spark.VariantType()
        case Encoding.BOOLEAN if not wire.checked:
            return spark.BooleanType()
        case encoding if encoding in NUMBERS and not wire.checked:
            return spark_type(LogicalType(wire.number))
        case _:
            return spark.StringType()
