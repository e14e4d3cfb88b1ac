"""Types of searched values, and what a text says in each: the value itself, or None if the text is none of the type."""

from __future__ import annotations

import base64
import binascii
import re
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from uuid import UUID

_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIMESTAMP = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(\.\d{1,9})?(?:[ ]?(Z|z|UTC|[+-]\d\d(?::?\d\d)?))?", re.IGNORECASE
)
_TIME = re.compile(r"(\d\d:\d\d:\d\d)(\.\d{1,9})?(?:Z|[+-]\d\d(?::?\d\d)?)?")
_UUID = re.compile(r"\{?[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}\}?", re.IGNORECASE)
_HEX = re.compile(r"(?:\\x|0x)?((?:[0-9a-f]{2})+)", re.IGNORECASE)


class ValueType(StrEnum):
    """Types that a search term may name. `DECIMAL` is any number that isn't an integer."""

    TEXT = "text"
    INTEGER = "integer"
    DECIMAL = "decimal"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"
    UUID = "uuid"
    BYTES = "bytes"


def inferred_type(text: str) -> ValueType:
    """Returns the most specific type that a text is written in; `TEXT` for all others. Bytes are never inferred."""
    if _DATE.fullmatch(text) and as_date(text) is not None:
        return ValueType.DATE
    if _UUID.fullmatch(text):
        return ValueType.UUID if "-" in text else _number_type(text)
    if _TIMESTAMP.fullmatch(text) and as_timestamp(text) is not None:
        return ValueType.TIMESTAMP
    if _TIME.fullmatch(text) and as_time(text) is not None:
        return ValueType.TIME
    return _number_type(text)


def is_of(text: str, kind: ValueType) -> bool:
    """Returns True if the text is a value of this type."""
    readers = {
        ValueType.INTEGER: as_integer,
        ValueType.DECIMAL: as_decimal,
        ValueType.DATE: as_date,
        ValueType.TIME: as_time,
        ValueType.TIMESTAMP: as_timestamp,
        ValueType.UUID: as_uuid,
        ValueType.BYTES: as_bytes,
    }
    return kind is ValueType.TEXT or readers[kind](text) is not None


def as_integer(text: str) -> int | None:
    number = as_decimal(text)
    return int(number) if number is not None and number == number.to_integral_value() else None


def as_decimal(text: str) -> Decimal | None:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() and abs(number.adjusted()) < 400 else None


def as_date(text: str) -> date | None:
    try:
        return date.fromisoformat(text) if _DATE.fullmatch(text) else None
    except ValueError:
        return None


def as_time(text: str) -> int | None:
    """Returns nanoseconds since midnight, in the zone in which the time is written."""
    parts = _TIME.fullmatch(text)
    try:
        clock = time.fromisoformat(parts[1]) if parts else None
    except ValueError:
        return None
    if parts is None or clock is None:
        return None
    seconds = (clock.hour * 60 + clock.minute) * 60 + clock.second
    return seconds * 10**9 + _nanos(parts[2])


def as_timestamp(text: str) -> int | None:
    """Returns nanoseconds since 1970-01-01 in UTC. A date is its midnight; a time without a zone is taken as UTC."""
    parts = _TIMESTAMP.fullmatch(text if not _DATE.fullmatch(text) else f"{text} 00:00:00")
    if parts is None:
        return None
    zone = (parts[4] or "").upper().replace("UTC", "").replace("Z", "")
    try:
        moment = datetime.fromisoformat(f"{parts[1]}T{parts[2]}{zone}")
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 10**9 + _nanos(parts[3])


def as_uuid(text: str) -> UUID | None:
    return UUID(text) if _UUID.fullmatch(text) else None


def as_bytes(text: str) -> bytes | None:
    """Returns the bytes of a text in hexadecimal, with `\\x` or `0x` before it or not, or in base64."""
    if digits := _HEX.fullmatch(text):
        return bytes.fromhex(digits[1])
    try:
        return base64.b64decode(text, validate=True) or None
    except (binascii.Error, ValueError):
        return None


def _number_type(text: str) -> ValueType:
    # Signs, underscores and exponents are of texts as well, such as of telephone numbers.
    if re.fullmatch(r"-?\d+", text):
        return ValueType.INTEGER
    return ValueType.DECIMAL if re.fullmatch(r"-?\d+\.\d+", text) else ValueType.TEXT


def _nanos(fraction: str | None) -> int:
    return int((fraction or ".0")[1:].ljust(9, "0"))
