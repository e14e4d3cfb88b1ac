"""A column of a changelog: how its values are written in JSON, and what they mean."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from ingest.changelog.values.types import Kind, LogicalType, OutOfRange


class Encoding(StrEnum):
    """How a value is written. The names of Kafka Connect and Debezium for it are in `connect_schema`."""

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
"""What is written as a JSON number of some width."""


@dataclass(frozen=True, slots=True)
class WireType:
    """How a value is written in JSON.

    `number` is the width of a JSON number. `digits` are a decimal's scale (38 where nobody knows it) or, of a
    unit of time, the digits of a fraction of a second: 3, 6 or 9. `checked` means that no schema vouches for
    the token, so it is read as text and parsed by `decode`. `elements` are an array's element, a map's key
    and value, or a struct's fields, which `names` names. `out_of_range`: of dates and timestamps.
    """

    encoding: Encoding
    number: Kind = Kind.INT64
    digits: int = 0
    checked: bool = False
    elements: tuple[WireType, ...] = ()
    names: tuple[str, ...] = ()
    out_of_range: OutOfRange = OutOfRange.CLAMP

    def with_out_of_range(self, rule: OutOfRange) -> WireType:
        """Returns the same type, with what becomes of times out of range, in nested values too."""
        elements = tuple(element.with_out_of_range(rule) for element in self.elements)
        return replace(self, out_of_range=rule, elements=elements)


@dataclass(frozen=True, slots=True)
class Column:
    """`default` is JSON text, written as a value of the column is; it counts only where `has_default`. `sealed`: what
    the column is once its values are decrypted, where they are not. `inferred`: its type was found in its values, by
    `inference`. `as_stored`: its type is the one that the table has, so the event says nothing of it."""

    name: str
    wire: WireType
    type: LogicalType
    optional: bool = True
    default: str | None = None
    has_default: bool = False
    sealed: Column | None = None
    inferred: bool = False
    as_stored: bool = False
