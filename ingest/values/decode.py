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

from ingest.errors import ChangelogUnusable
from ingest.values import decimals, scalars, temporal
from ingest.values.base64_text import bytes_of
from ingest.values.columns import Encoding, WireType
from ingest.values.types import FLOATS, INTEGERS, Kind, LogicalType, OutOfRange, spark_type
from ingest.values.wire_types import wire_spark_type

Decoder = Callable[[SparkColumn, WireType, LogicalType], SparkColumn]

_TEXTS = (Kind.STRING, Kind.JSON, Kind.XML, Kind.UUID, Kind.LTREE, Kind.ENUM, Kind.INTERVAL_ISO, Kind.UNKNOWN)


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
    if _is_unchanged(wire, target):
        return F.lit(False)
    present = value.isNotNull()
    match wire.encoding:
        case Encoding.ARRAY:
            element = _undecodable_part(wire.elements[0], target.elements[0])
            inner_undecodable = F.exists(value, element)
        case Encoding.MAP:
            key, value_part = (_undecodable_part(*pair) for pair in zip(wire.elements, target.elements, strict=True))
            inner_undecodable = F.exists(F.map_keys(value), key) | F.exists(F.map_values(value), value_part)
        case Encoding.MAP_ENTRIES:
            inner_undecodable = F.exists(value, lambda entry: _is_undecodable_entry(entry, wire, target))
        case Encoding.STRUCT:
            types = dict(zip(target.names, target.elements, strict=True))
            fields = zip(wire.names, wire.elements, strict=True)
            parts = [undecodable(value.getField(name), part, types[name]) for name, part in fields]
            inner_undecodable = F.array_contains(F.array(*parts), True) if parts else F.lit(False)
        case _:
            inner_undecodable = decode(value, _with_clamping(wire), target).isNull()
            if isinstance(wire_spark_type(wire), spark.VariantType):
                present &= ~F.is_variant_null(value)
    # `inner_undecodable` is the left operand: there Spark recognizes it as a common subexpression.
    return F.coalesce(inner_undecodable & present, F.lit(False))


def _with_clamping(wire: WireType) -> WireType:
    """Returns a wire type that clamps times out of range instead of nulling them."""
    return replace(wire, out_of_range=OutOfRange.CLAMP) if wire.out_of_range is OutOfRange.SET_NULL else wire


def _is_unchanged(wire: WireType, target: LogicalType) -> bool:
    """Returns true if `decode` returns its input unchanged."""
    plain = wire.encoding in (Encoding.BOOLEAN, Encoding.NUMBER) and not wire.checked
    return wire.encoding is Encoding.TEXT or (plain and wire_spark_type(wire) == spark_type(target))


def _undecodable_part(wire: WireType, target: LogicalType) -> Callable[[SparkColumn], SparkColumn]:
    return lambda value: undecodable(value, wire, target)


def _array(value: SparkColumn, wire: WireType, target: LogicalType) -> SparkColumn:
    return F.transform(value, lambda element: decode(element, wire.elements[0], target.elements[0]))


def _map(value: SparkColumn, wire: WireType, target: LogicalType) -> SparkColumn:
    return F.transform_values(value, lambda _, value_part: decode(value_part, wire.elements[1], target.elements[1]))


def _entry(entry: SparkColumn, position: int, wire: WireType) -> SparkColumn:
    part = F.get(entry, F.lit(position))
    return F.try_variant_get(part, "$", wire_spark_type(wire.elements[position]).simpleString())


def _is_undecodable_entry(entry: SparkColumn, wire: WireType, target: LogicalType) -> SparkColumn:
    """Returns true if an entry is no pair of a key that is not null and a value that is null or decodable."""
    key = decode(_entry(entry, 0, wire), wire.elements[0], target.elements[0])
    value_part = decode(_entry(entry, 1, wire), wire.elements[1], target.elements[1])
    lost = value_part.isNull() & ~F.is_variant_null(F.get(entry, F.lit(1)))
    return F.coalesce((F.size(entry) != 2) | key.isNull() | lost, F.lit(True))


def _map_entries(value: SparkColumn, wire: WireType, target: LogicalType) -> SparkColumn:
    def pair(entry: SparkColumn) -> SparkColumn:
        decoded = (decode(_entry(entry, i, wire), wire.elements[i], target.elements[i]) for i in (0, 1))
        return F.struct(*decoded)

    whole = ~F.exists(value, lambda entry: _is_undecodable_entry(entry, wire, target))
    return F.when(whole, F.map_from_entries(F.transform(value, pair)))


def _struct(value: SparkColumn, wire: WireType, target: LogicalType) -> SparkColumn:
    wires = dict(zip(wire.names, wire.elements, strict=True))
    fields = [
        decode(value.getField(name), wires[name], kind) if name in wires else F.lit(None).cast(spark_type(kind))
        for name, kind in zip(target.names, target.elements, strict=True)
    ]
    named = [field.alias(name) for field, name in zip(fields, target.names, strict=True)]
    return F.when(value.isNotNull(), F.struct(*named))


_TARGETS: dict[Encoding, tuple[Kind, ...]] = {
    Encoding.BOOLEAN: (Kind.BOOLEAN,),
    Encoding.NUMBER: (*INTEGERS, *FLOATS, Kind.DECIMAL, Kind.DECIMAL_TEXT),
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
    Encoding.BOOLEAN: scalars.boolean,
    Encoding.NUMBER: scalars.number,
    Encoding.TEXT: lambda value, _, __: value,
    Encoding.BASE64: lambda value, _, __: bytes_of(value),
    Encoding.BITS: scalars.bits,
    Encoding.DECIMAL_UNSCALED: lambda value, wire, target: decimals.from_unscaled(value, wire.digits, target),
    Encoding.DECIMAL_VARIABLE: lambda value, _, __: decimals.from_variable_scale(value),
    Encoding.DECIMAL_PLAIN: lambda value, wire, target: decimals.from_plain(value, wire.digits, target),
    Encoding.EPOCH_DAYS: scalars.days,
    Encoding.DATE_TEXT: scalars.date_text,
    Encoding.DATE_ANY: scalars.date_any,
    Encoding.TIME_OF_DAY: scalars.time_of_day,
    Encoding.TIME_TEXT: lambda value, _, __: temporal.time_from_text(value),
    Encoding.TIME_TZ_TEXT: lambda value, _, __: temporal.time_tz_from_text(value),
    Encoding.EPOCH: scalars.epoch,
    Encoding.TIMESTAMP_TEXT: lambda value, wire, __: temporal.timestamp_from_text(value, wire.out_of_range),
    Encoding.TIMESTAMP_TZ_TEXT: lambda value, wire, __: temporal.timestamp_tz_from_text(value, wire.out_of_range),
    Encoding.DURATION: scalars.duration,
    Encoding.ARRAY: _array,
    Encoding.MAP: _map,
    Encoding.MAP_ENTRIES: _map_entries,
    Encoding.STRUCT: _struct,
    Encoding.JSON_VALUE: scalars.json_value,
    Encoding.NOTHING: lambda _, __, target: F.lit(None).cast(spark_type(target)),
}
