"""Decodes values as a connector writes them to values as silver stores them, as Spark SQL expressions.

`from_json` reads a column as `wire_spark_type`. An encoding that it could misread silently is read as text or VARIANT
and decoded here. JSON that contradicts a schema's physical type (a text for an int32), or is no array, map or object
where one is expected, is reported in the corrupt-record column of `from_json`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F
from pyspark.sql import types as spark

from ingest.changelog.values import decimals, temporal
from ingest.changelog.values.base64_text import bytes_of
from ingest.changelog.values.columns import NUMBERS, Encoding, WireType
from ingest.changelog.values.json_text import json_text
from ingest.changelog.values.types import Kind, LogicalType, OutOfRange, spark_type
from ingest.changelog.values.unavailable import is_unavailable
from ingest.errors import ChangelogUnusable

__all__ = ["decode", "is_unavailable", "undecodable", "wire_spark_type"]

Decoder = Callable[[SparkColumn, WireType, LogicalType], SparkColumn]

_FLOATS = (Kind.FLOAT32, Kind.FLOAT64)
_ALWAYS_KEPT = {Kind.FLOAT32: 6, Kind.FLOAT64: 15}
"""The number of decimal digits that a float always keeps."""
_INTEGERS = (Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT53, Kind.INT64)
_TEXTS = (Kind.STRING, Kind.JSON, Kind.XML, Kind.UUID, Kind.LTREE, Kind.ENUM, Kind.INTERVAL_ISO, Kind.UNKNOWN)


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
        case Encoding.NUMBER if wire.checked and wire.number in _FLOATS:
            return spark.VariantType()
        case Encoding.BOOLEAN if not wire.checked:
            return spark.BooleanType()
        case encoding if encoding in NUMBERS and not wire.checked:
            return spark_type(LogicalType(wire.number))
        case _:
            return spark.StringType()


def decode(value: SparkColumn, wire: WireType, target: LogicalType) -> SparkColumn:
    """Returns `value`, read as `wire_spark_type(wire)`, as a `spark_type(target)`; null if it can't be decoded
    (`undecodable` tells these from true nulls).

    `target`: the column's type or a wider one (`types.widest`). Raises ChangelogUnusable for any other.
    """
    if target.kind not in _TARGETS[wire.encoding]:
        raise ChangelogUnusable(
            f"a column written as {wire.encoding.name.lower()} ({wire.encoding}) can't become {target}",
            "give the column a type that holds both, or rename it at the source",
        )
    return _DECODERS[wire.encoding](value, wire, target)


def undecodable(value: SparkColumn, wire: WireType, target: LogicalType) -> SparkColumn:
    """Returns true for a value other than null of which `decode` would lose a part or all. Never null.

    An unavailable value is usually undecodable too: test `is_unavailable` first.
    """
    if _kept_as_it_is(wire, target):
        return F.lit(False)
    present = value.isNotNull()
    match wire.encoding:
        case Encoding.ARRAY:
            element = _part(wire.elements[0], target.elements[0])
            inner = F.exists(value, element)
        case Encoding.MAP:
            key, inner_value = (_part(*pair) for pair in zip(wire.elements, target.elements, strict=True))
            inner = F.exists(F.map_keys(value), key) | F.exists(F.map_values(value), inner_value)
        case Encoding.MAP_ENTRIES:
            inner = F.exists(value, lambda entry: _bad_entry(entry, wire, target))
        case Encoding.STRUCT:
            types = dict(zip(target.names, target.elements, strict=True))
            fields = zip(wire.names, wire.elements, strict=True)
            parts = [undecodable(value.getField(name), part, types[name]) for name, part in fields]
            inner = F.array_contains(F.array(*parts), True) if parts else F.lit(False)
        case _:
            inner = decode(value, _readable(wire), target).isNull()
            if isinstance(wire_spark_type(wire), spark.VariantType):
                present &= ~F.is_variant_null(value)
    # `inner` is the left operand: there Spark recognizes it as a common subexpression.
    return F.coalesce(inner & present, F.lit(False))


def _readable(wire: WireType) -> WireType:
    """Returns a wire type that clamps times out of range instead of nulling them."""
    return replace(wire, out_of_range=OutOfRange.CLAMP) if wire.out_of_range is OutOfRange.SET_NULL else wire


def _kept_as_it_is(wire: WireType, target: LogicalType) -> bool:
    """Returns true if `decode` returns its input unchanged."""
    plain = wire.encoding in (Encoding.BOOLEAN, Encoding.NUMBER) and not wire.checked
    return wire.encoding is Encoding.TEXT or (plain and wire_spark_type(wire) == spark_type(target))


def _part(wire: WireType, target: LogicalType) -> Callable[[SparkColumn], SparkColumn]:
    return lambda value: undecodable(value, wire, target)


def _boolean(value: SparkColumn, wire: WireType, _: LogicalType) -> SparkColumn:
    if not wire.checked:
        return value
    # Compare texts first: a `try_cast` that fails throws an exception per row.
    written = F.when(value == "true", F.lit(True)).when(value == "false", F.lit(False))
    return written.otherwise(F.coalesce(value.try_cast("bigint") != 0, value.try_cast("boolean")))


def _number(value: SparkColumn, wire: WireType, target: LogicalType) -> SparkColumn:
    if wire.checked and wire.number in _FLOATS:
        return _checked_float(value, wire).cast(spark_type(target))
    narrow = value.try_cast(spark_type(LogicalType(wire.number))) if wire.checked else value
    return narrow.try_cast(spark_type(target))


def _checked_float(variant: SparkColumn, wire: WireType) -> SparkColumn:
    """Returns the float of a number; null if it has more digits than the float keeps."""
    text = decimals.text_of(variant)
    floating = text.try_cast(spark_type(LogicalType(wire.number)))
    return F.when(F.length(text) <= _ALWAYS_KEPT[wire.number], floating).otherwise(_if_exact(variant, text, floating))


def _if_exact(variant: SparkColumn, text: SparkColumn, floating: SparkColumn) -> SparkColumn:
    variant_type = F.schema_of_variant(variant)
    is_exact = _significant(floating.cast("string")) == _significant(text)
    is_exact_as_double = _significant(floating.cast("double").cast("string")) == _significant(text)
    is_decimal = (variant_type == "BIGINT") | variant_type.startswith("DECIMAL")
    is_unchecked = (variant_type == "DOUBLE") | (variant_type == "STRING")
    return F.when(is_unchecked | (is_decimal & (is_exact | is_exact_as_double)), floating)


def _significant(number: SparkColumn) -> SparkColumn:
    digits = F.translate(F.split_part(number, F.lit("E"), F.lit(1)), "-.", "")
    return F.trim(digits, F.lit("0"))


def _bits(value: SparkColumn, wire: WireType, target: LogicalType) -> SparkColumn:
    little_endian = F.hex(bytes_of(value))
    swapped = F.regexp_replace(F.reverse(little_endian), "(.)(.)", "$2$1")
    digits = F.ltrim(swapped, F.lit("0"))
    low = F.conv(F.lpad(F.right(digits, F.lit(16)), 16, "0"), 16, 10).cast("decimal(20,0)")
    if target.precision <= 64:
        return F.when(F.length(digits) <= 16, low.try_cast(spark_type(target)))
    padded = F.lpad(digits, 32, "0")
    high = F.conv(F.left(padded, F.lit(16)), 16, 10).cast("decimal(20,0)")
    total = F.try_add(F.try_multiply(high, F.lit(str(2**64)).cast("decimal(20,0)")), low)
    return F.when(F.length(digits) <= 32, total.try_cast(spark_type(target)))


def _temporal_number(value: SparkColumn, wire: WireType) -> SparkColumn:
    return value.try_cast(spark_type(LogicalType(wire.number))) if wire.checked else value


def _days(value: SparkColumn, wire: WireType, target: LogicalType) -> SparkColumn:
    return temporal.date_from_days(_temporal_number(value, wire), wire.out_of_range).try_cast(spark_type(target))


def _date_text(value: SparkColumn, wire: WireType, target: LogicalType) -> SparkColumn:
    return temporal.date_from_text(value, wire.out_of_range).try_cast(spark_type(target))


def _date_any(value: SparkColumn, wire: WireType, target: LogicalType) -> SparkColumn:
    return temporal.date_from_any(value, wire.out_of_range).try_cast(spark_type(target))


def _epoch(value: SparkColumn, wire: WireType, target: LogicalType) -> SparkColumn:
    units = _temporal_number(value, wire)
    zoned = target.kind is Kind.TIMESTAMP_TZ
    return temporal.instant_from_units(units, wire.digits, wire.out_of_range, zoned).cast(spark_type(target))


def _time_of_day(value: SparkColumn, wire: WireType, _: LogicalType) -> SparkColumn:
    return temporal.time_from_units(_temporal_number(value, wire), wire.digits)


def _duration(value: SparkColumn, wire: WireType, _: LogicalType) -> SparkColumn:
    units = _temporal_number(value, wire)
    return temporal.micros_from_nanos(units) if wire.digits == 9 else units


def _array(value: SparkColumn, wire: WireType, target: LogicalType) -> SparkColumn:
    return F.transform(value, lambda element: decode(element, wire.elements[0], target.elements[0]))


def _map(value: SparkColumn, wire: WireType, target: LogicalType) -> SparkColumn:
    return F.transform_values(value, lambda _, inner_value: decode(inner_value, wire.elements[1], target.elements[1]))


def _entry(entry: SparkColumn, position: int, wire: WireType) -> SparkColumn:
    part = F.get(entry, F.lit(position))
    return F.try_variant_get(part, "$", wire_spark_type(wire.elements[position]).simpleString())


def _bad_entry(entry: SparkColumn, wire: WireType, target: LogicalType) -> SparkColumn:
    """Returns true if an entry is no pair of a key that is not null and a value that is null or decodable."""
    key = decode(_entry(entry, 0, wire), wire.elements[0], target.elements[0])
    inner_value = decode(_entry(entry, 1, wire), wire.elements[1], target.elements[1])
    lost = inner_value.isNull() & ~F.is_variant_null(F.get(entry, F.lit(1)))
    return F.coalesce((F.size(entry) != 2) | key.isNull() | lost, F.lit(True))


def _map_entries(value: SparkColumn, wire: WireType, target: LogicalType) -> SparkColumn:
    def pair(entry: SparkColumn) -> SparkColumn:
        decoded = (decode(_entry(entry, i, wire), wire.elements[i], target.elements[i]) for i in (0, 1))
        return F.struct(*decoded)

    whole = ~F.exists(value, lambda entry: _bad_entry(entry, wire, target))
    return F.when(whole, F.map_from_entries(F.transform(value, pair)))


def _struct(value: SparkColumn, wire: WireType, target: LogicalType) -> SparkColumn:
    wires = dict(zip(wire.names, wire.elements, strict=True))
    fields = [
        decode(value.getField(name), wires[name], kind) if name in wires else F.lit(None).cast(spark_type(kind))
        for name, kind in zip(target.names, target.elements, strict=True)
    ]
    named = [field.alias(name) for field, name in zip(fields, target.names, strict=True)]
    return F.when(value.isNotNull(), F.struct(*named))


def _json_value(value: SparkColumn, _: WireType, target: LogicalType) -> SparkColumn:
    text = json_text(value)
    match target.kind:
        case Kind.DECIMAL_TEXT:
            return F.when(text.rlike("^-?[0-9]"), text)
        case Kind.STRING:
            return F.when(F.schema_of_variant(value) == "STRING", decimals.text_of(value)).otherwise(text)
        case _:
            return text


_TARGETS: dict[Encoding, tuple[Kind, ...]] = {
    Encoding.BOOLEAN: (Kind.BOOLEAN,),
    Encoding.NUMBER: (*_INTEGERS, *_FLOATS, Kind.DECIMAL, Kind.DECIMAL_TEXT),
    Encoding.TEXT: _TEXTS,
    Encoding.BASE64: (Kind.BYTES,),
    Encoding.BITS: (Kind.BITS,),
    Encoding.DECIMAL_UNSCALED: (Kind.DECIMAL, Kind.DECIMAL_TEXT),
    Encoding.DECIMAL_VARIABLE: (Kind.DECIMAL_TEXT,),
    Encoding.DECIMAL_PLAIN: (Kind.DECIMAL, Kind.DECIMAL_TEXT),
    Encoding.EPOCH_DAYS: (Kind.DATE, Kind.TIMESTAMP),
    Encoding.DATE_TEXT: (Kind.DATE, Kind.TIMESTAMP),
    Encoding.DATE_ANY: (Kind.DATE, Kind.TIMESTAMP),
    Encoding.TIME_OF_DAY: (Kind.TIME,),
    Encoding.TIME_TEXT: (Kind.TIME,),
    Encoding.TIME_TZ_TEXT: (Kind.TIME_TZ,),
    Encoding.EPOCH: (Kind.TIMESTAMP, Kind.TIMESTAMP_TZ),
    Encoding.TIMESTAMP_TEXT: (Kind.TIMESTAMP,),
    Encoding.TIMESTAMP_TZ_TEXT: (Kind.TIMESTAMP_TZ,),
    Encoding.DURATION: (Kind.INTERVAL_MICROS,),
    Encoding.ARRAY: (Kind.ARRAY,),
    Encoding.MAP: (Kind.MAP,),
    Encoding.MAP_ENTRIES: (Kind.MAP,),
    Encoding.STRUCT: (Kind.STRUCT,),
    Encoding.JSON_VALUE: (Kind.DECIMAL_TEXT, Kind.JSON, Kind.STRING),
    Encoding.NOTHING: tuple(Kind),
}
_DECODERS: dict[Encoding, Decoder] = {
    Encoding.BOOLEAN: _boolean,
    Encoding.NUMBER: _number,
    Encoding.TEXT: lambda value, _, __: value,
    Encoding.BASE64: lambda value, _, __: bytes_of(value),
    Encoding.BITS: _bits,
    Encoding.DECIMAL_UNSCALED: lambda value, wire, target: decimals.from_unscaled(value, wire.digits, target),
    Encoding.DECIMAL_VARIABLE: lambda value, _, __: decimals.from_variable_scale(value),
    Encoding.DECIMAL_PLAIN: lambda value, wire, target: decimals.from_plain(value, wire.digits, target),
    Encoding.EPOCH_DAYS: _days,
    Encoding.DATE_TEXT: _date_text,
    Encoding.DATE_ANY: _date_any,
    Encoding.TIME_OF_DAY: _time_of_day,
    Encoding.TIME_TEXT: lambda value, _, __: temporal.time_from_text(value),
    Encoding.TIME_TZ_TEXT: lambda value, _, __: temporal.time_tz_from_text(value),
    Encoding.EPOCH: _epoch,
    Encoding.TIMESTAMP_TEXT: lambda value, wire, __: temporal.timestamp_from_text(value, wire.out_of_range),
    Encoding.TIMESTAMP_TZ_TEXT: lambda value, wire, __: temporal.timestamp_tz_from_text(value, wire.out_of_range),
    Encoding.DURATION: _duration,
    Encoding.ARRAY: _array,
    Encoding.MAP: _map,
    Encoding.MAP_ENTRIES: _map_entries,
    Encoding.STRUCT: _struct,
    Encoding.JSON_VALUE: _json_value,
    Encoding.NOTHING: lambda _, __, target: F.lit(None).cast(spark_type(target)),
}
