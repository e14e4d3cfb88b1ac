"""The lattice of inferred types, those of columns without schema or declaration.

    unknown  <  boolean                       <  json  <  string
    unknown  <  int53 < int64, float64 < decimal_text  <  json
    unknown  <  array of one of these, element by element  <  json

`join` is the smallest type that holds every value of both without loss. It is associative, commutative and idempotent,
so a table's rows don't depend on batching. Null is of type `unknown`. `int53` is a whole number that a 64-bit float
represents exactly, so it joins with fractions to `float64`; a whole number or fraction of more digits makes the column
`decimal_text`, since an exact number never passes through a float. Objects, and values of several kinds, are JSON text;
if one of the kinds is a string, the column is a string.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from ingest.values.columns import Encoding, WireType
from ingest.values.types import Kind, LogicalType, array_of

UNKNOWN = LogicalType(Kind.UNKNOWN)
_JSON = LogicalType(Kind.JSON)
_STRING = LogicalType(Kind.STRING)
_NUMBERS = {Kind.INT53: (False, False), Kind.INT64: (True, False)}
_NUMBERS |= {Kind.FLOAT64: (False, True), Kind.DECIMAL_TEXT: (True, True)}
"""Number kinds by two flags: a 64-bit float can't represent some value; some value is a fraction."""
_KIND_OF = {flags: kind for kind, flags in _NUMBERS.items()}


def join(one: LogicalType, other: LogicalType) -> LogicalType:
    """Returns the smallest type of the lattice that holds every value of both."""
    if one == other or other.kind is Kind.UNKNOWN:
        return one
    if one.kind is Kind.UNKNOWN:
        return other
    if Kind.STRING in (one.kind, other.kind):
        return _STRING
    if one.kind in _NUMBERS and other.kind in _NUMBERS:
        inexact, fraction = map(any, zip(_NUMBERS[one.kind], _NUMBERS[other.kind], strict=True))
        return LogicalType(_KIND_OF[inexact, fraction])
    if one.kind is other.kind is Kind.ARRAY:
        return _join_arrays(one.elements[0], other.elements[0])
    return _JSON


def join_all(types: Iterable[LogicalType]) -> LogicalType:
    """Returns the join of all types; `unknown` for none."""
    return reduce(join, types, UNKNOWN)


def _join_arrays(one: LogicalType, other: LogicalType) -> LogicalType:
    """Returns the join of two array types by their elements: an array if these are of one kind, else JSON."""
    joined = join(one, other)
    both_numbers = one.kind in _NUMBERS and other.kind in _NUMBERS
    same_kind = joined.kind in (one.kind, other.kind) and (one.kind is other.kind or UNKNOWN in (one, other))
    return array_of(joined) if both_numbers or same_kind else _JSON


def wire_of(target: LogicalType, only_texts: bool = False) -> WireType:
    """Returns the encoding by which to read values of a column of the inferred type `target`. `only_texts`: all values
    are known to be strings; a string column may otherwise hold other JSON values."""
    match target.kind:
        case Kind.UNKNOWN:
            return WireType(Encoding.NOTHING, checked=True)
        case Kind.BOOLEAN:
            return WireType(Encoding.BOOLEAN, checked=True)
        case Kind.INT53 | Kind.INT64:
            return WireType(Encoding.NUMBER, Kind.INT64, checked=True)
        case Kind.FLOAT64:
            return WireType(Encoding.NUMBER, Kind.FLOAT64, checked=True)
        case Kind.ARRAY:
            return WireType(Encoding.ARRAY, elements=(wire_of(target.elements[0], only_texts=True),))
        case Kind.STRING if only_texts:
            return WireType(Encoding.TEXT, checked=True)
        case _:
            return WireType(Encoding.JSON_VALUE, checked=True)


def is_inferable(logical: LogicalType) -> bool:
    """Returns true if the type is one of the lattice."""
    if logical.kind is Kind.ARRAY:
        return is_inferable(logical.elements[0])
    return logical.kind in (*_NUMBERS, Kind.UNKNOWN, Kind.BOOLEAN, Kind.STRING, Kind.JSON)
