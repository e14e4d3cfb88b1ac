"""Columns of a changelog: the encoding of their values in JSON, and their logical types."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from ingest.values.types import Kind, LogicalType, OutOfRange


class Encoding(StrEnum):
    """Encodings of a value in JSON. `connect_schema` maps the types of Kafka Connect and Debezium to them."""

    BOOLEAN = "true or false, in MySQL also a number"
    NUMBER = "a JSON number, or NaN, Infinity and -Infinity as text"
    TEXT = "text that is the value itself"
    BASE64 = "base64 of bytes"
    BITS = "base64 of a bit string, least significant byte first; zero may be no bytes at all"
    DECIMAL_UNSCALED = "base64 of the unscaled two's complement, or (decimal.format=NUMERIC) a JSON number"
    DECIMAL_VARIABLE = "an object of a scale and the base64 of the unscaled two's complement"
    DECIMAL_PLAIN = "a JSON number, or its digits as text"
    EPOCH_DAYS = "days since 1970-01-01"
    DATE_TEXT = "an ISO date"
    DATE_ANY = "days since 1970-01-01, or an ISO date"
    TIME_OF_DAY = "units since midnight"
    TIME_TEXT = "an ISO time without offset; Debezium adds a Z"
    TIME_TZ_TEXT = "an ISO time with offset"
    EPOCH = "units since 1970-01-01"
    TIMESTAMP_TEXT = "an ISO timestamp without offset; Debezium adds a Z"
    TIMESTAMP_TZ_TEXT = "an ISO timestamp with offset, infinity or -infinity"
    DURATION = "units"
    ARRAY = "an array"
    MAP = "an object whose names are the keys"
    MAP_ENTRIES = "an array of [key, value]"
    STRUCT = "an object"
    JSON_VALUE = "any JSON value"
    NOTHING = "null and nothing else"


NUMBERS = (Encoding.NUMBER, Encoding.EPOCH_DAYS, Encoding.TIME_OF_DAY, Encoding.EPOCH, Encoding.DURATION)
"""Encodings by a JSON number whose width is `WireType.number`."""


@dataclass(frozen=True, slots=True)
class WireType:
    """The encoding of a value in JSON, with its parameters.

    `number`: the width of a JSON number. `digits`: a decimal's scale (38 if unknown), or the digits of a time unit's
    fraction of a second (3, 6 or 9). `checked`: no schema guarantees the token, so it is read as text and parsed by
    `decode`. `elements`: an array's element, a map's key and value, or a struct's fields. `names`: those of the fields.
    `out_of_range`: the rule for dates and timestamps.
    """

    encoding: Encoding
    number: Kind = Kind.INT64
    digits: int = 0
    checked: bool = False
    elements: tuple[WireType, ...] = ()
    names: tuple[str, ...] = ()
    out_of_range: OutOfRange = OutOfRange.CLAMP

    def with_out_of_range(self, rule: OutOfRange) -> WireType:
        """Returns the same type with this rule for times out of range, in nested values too."""
        elements = tuple(element.with_out_of_range(rule) for element in self.elements)
        return replace(self, out_of_range=rule, elements=elements)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of an event.

    `default`: JSON text in the column's encoding; valid only if `has_default`. `sealed`: of an encrypted column, the
    column that its values decrypt to. `inferred`: the type was inferred from values. `as_stored`: the type is the
    table's, since the event has none. `written`: the type that events have, where `type` is the declared one; None
    where none is declared. `is_cast`: values are read as `written` and then cast to `type`.
    """

    name: str
    wire: WireType
    type: LogicalType
    optional: bool = True
    default: str | None = None
    has_default: bool = False
    sealed: Column | None = None
    inferred: bool = False
    as_stored: bool = False
    written: LogicalType | None = None
    is_cast: bool = False
