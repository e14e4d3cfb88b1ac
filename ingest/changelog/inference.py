"""Columns of a changelog without a schema, out of the values themselves.

Spark's `schema_of_variant_agg` joins the shapes of a batch in one pass; here its text becomes columns. A number
with a fraction is read as float64, as JSON means it; one with more digits than a double holds is refused at
decoding rather than rounded (declare the column's type). A column of which only nulls were seen is `unknown`
until a value says more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.columns import NUMBERS, Column, Encoding, WireType
from ingest.changelog.connect_schema import declared
from ingest.changelog.types import Kind, LogicalType
from ingest.names import identifier
from ingest.plain_json import WITHOUT_LIMITS

_OUTSIDE_QUOTES = re.compile(r"`(?:[^`]|``)*`|OBJECT<")


_IMAGES = "before variant, after variant"
_UNOPENED = "_corrupt"
_LONG_DIGITS, _MOST_DIGITS = 20, 38
"""Of a decimal that takes each bigint, and of the longest one."""
_DIGITS_KEPT = 15
"""So many digits a float64 keeps, whichever they are."""


def images(value: SparkColumn) -> SparkColumn:
    """Both row images of a schemaless value, whatever is in them; for `shape`. Nothing else of the value is kept."""
    opened = f"{_IMAGES}, payload struct<{_IMAGES}>, {_UNOPENED} string"
    return F.from_json(value, opened, {"columnNameOfCorruptRecord": _UNOPENED, **WITHOUT_LIMITS})


def are_whole(opened: SparkColumn) -> SparkColumn:
    """Whether all that is in `images` could be opened. An object that names a field twice can't: no shape tells of
    it."""
    return opened.isNotNull() & opened[_UNOPENED].isNull()


def shape(opened: SparkColumn, wrapped: SparkColumn) -> SparkColumn:
    """Aggregate: the joined shape of the row images (else of the images before) of `images`, as text."""

    def image(member: str) -> SparkColumn:
        found = F.when(wrapped, opened["payload"][member]).otherwise(opened[member])
        return F.when(~F.is_variant_null(found), found)

    return F.schema_of_variant_agg(F.coalesce(image("after"), image("before")))


def inferred(shape_text: str | None) -> tuple[Column, ...]:
    """Columns out of the text that `shape` gives; none for a text that names no object."""
    return tuple(declared(name, _logical(seen)) for name, seen in _seen(shape_text).items())


def joined(one: str | None, other: str | None) -> str | None:
    """The shape of all values that had the one or the other, as `shape` would have joined them."""
    if one is None or other is None or one == other:
        return other if one is None else one
    return _text(_join(_type(one), _type(other)))


def outline(shape_text: str | None) -> str | None:
    """A shape that tells of columns as much, and of the objects in them no names: those may be keys of a map."""
    return shape_text and _text(_outline(_type(shape_text), 0))


def _outline(seen: T.DataType, depth: int) -> T.DataType:
    match seen:
        case T.StructType() if not depth:
            return T.StructType([T.StructField(f.name, _outline(f.dataType, 1)) for f in seen.fields])
        case T.StructType():
            return T.VariantType()
        case T.ArrayType():
            return T.ArrayType(_outline(seen.elementType, depth + 1))
    return seen


def _join(one: T.DataType, other: T.DataType) -> T.DataType:
    match one, other:
        case (T.NullType(), _):
            return other
        case (_, T.NullType()):
            return one
        case (T.LongType(), T.LongType()):
            return one
        case (T.LongType() | T.DecimalType(), T.LongType() | T.DecimalType()):
            return _number(one, other)
        case (T.LongType() | T.DecimalType() | T.DoubleType(), T.LongType() | T.DecimalType() | T.DoubleType()):
            return T.DoubleType()
        case (T.ArrayType(), T.ArrayType()):
            return T.ArrayType(_join(one.elementType, other.elementType))
        case (T.StructType(), T.StructType()):
            types = {f.name: f.dataType for f in one.fields}
            for field in other.fields:
                types[field.name] = _join(types.get(field.name, T.NullType()), field.dataType)
            return T.StructType([T.StructField(name, types[name]) for name in sorted(types)])
    return one if one == other else T.VariantType()


def _number(one: T.DataType, other: T.DataType) -> T.DataType:
    digits = [(t.precision, t.scale) if isinstance(t, T.DecimalType) else (_LONG_DIGITS, 0) for t in (one, other)]
    scale = max(scale for _, scale in digits)
    whole = max(precision - scale for precision, scale in digits)
    return T.DecimalType(whole + scale, scale) if whole + scale <= _MOST_DIGITS else T.DoubleType()


def _type(shape_text: str) -> T.DataType:
    return T.DataType.fromDDL(_OUTSIDE_QUOTES.sub(lambda m: "STRUCT<" if m[0] == "OBJECT<" else m[0], shape_text))


def _text(seen: T.DataType) -> str:
    match seen:
        case T.StructType():
            return f"OBJECT<{', '.join(f'{identifier(f.name)}: {_text(f.dataType)}' for f in seen.fields)}>"
        case T.ArrayType():
            return f"ARRAY<{_text(seen.elementType)}>"
    return seen.simpleString().upper()


@lru_cache(maxsize=512)
def _seen(shape_text: str | None) -> Mapping[str, T.DataType]:
    if not shape_text or not shape_text.startswith("OBJECT<"):
        return {}
    parsed = _type(shape_text)
    return {f.name: f.dataType for f in parsed.fields} if isinstance(parsed, T.StructType) else {}


def vouched(columns: Sequence[Column], shape_text: str | None) -> frozenset[str]:
    """Of the columns that no schema vouches for, those whose every value the shape of all images shows to be one of
    their type."""
    seen = _seen(shape_text)
    return frozenset(c.name for c in columns if c.wire.checked and c.name in seen and _proves(seen[c.name], c.wire))


def _proves(seen: T.DataType, wire: WireType) -> bool:
    match seen:
        case T.BooleanType():
            return wire.encoding is Encoding.BOOLEAN
        case T.LongType():
            return wire.encoding in NUMBERS and wire.number is Kind.INT64
        case T.DecimalType():
            short = seen.precision <= _DIGITS_KEPT
            return short and wire.encoding is Encoding.NUMBER and wire.number is Kind.FLOAT64
    return False


def settled(
    columns: tuple[Column, ...], table: Mapping[str, LogicalType], key: Sequence[str], fold_case: bool = False
) -> tuple[Column, ...]:
    """Inferred columns read as their table knows them: an integer in a column of fractions, checked for exactness;
    and `key` columns that stand in the records' keys alone (a delete without an image)."""
    fraction = LogicalType(Kind.FLOAT64)
    read = tuple(
        declared(c.name, "float64") if c.type.kind is Kind.INT64 and table.get(c.name) == fraction else c
        for c in columns
    )
    there = {c.name.lower() if fold_case else c.name for c in columns}
    return (*read, *(declared(k, str(table[k])) for k in key if k not in there))


def _logical(seen: T.DataType) -> str:
    match seen:
        case T.BooleanType():
            return "boolean"
        case T.LongType():
            return "int64"
        case T.DecimalType() | T.DoubleType():
            return "float64"
        case T.StringType():
            return "string"
        case T.NullType():
            return "unknown"
        case T.ArrayType() if not isinstance(seen.elementType, T.StructType | T.VariantType | T.NullType):
            return f"array<{_logical(seen.elementType)}>"
    return "json"
