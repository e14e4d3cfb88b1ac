"""The forms of a value by its type: (value, type) → texts, numbers and bytes, each with a name."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal

from ingest.proof.forms.value_types import (
    ValueType,
    as_bytes,
    as_date,
    as_decimal,
    as_integer,
    as_time,
    as_timestamp,
    as_uuid,
)

MIN_BYTES = 6
"""Shorter values are found by chance in other people's data, and their base64 in any compressed file."""
MIN_DIGITS = 9
AS_GIVEN = "as given"
DAYS, SECONDS, MILLIS, MICROS, NANOS = (
    f"{unit} since 1970" for unit in ("days", "seconds", "milliseconds", "microseconds", "nanoseconds")
)
OF_THE_DAY = tuple(f"{unit} since midnight" for unit in ("seconds", "milliseconds", "microseconds", "nanoseconds"))
ISO_TEXT = "ISO 8601 text"
PLAIN_NUMBER = "plain number"
SCIENTIFIC = "scientific notation"
UNSCALED = "unscaled bytes of a decimal"
DASHED, UNDASHED = "uuid with dashes", "uuid without dashes"
UUID_BYTES, GUID_BYTES = "bytes of a uuid", "bytes of a uuid in Microsoft's order"
OPAQUE_BYTES = "bytes"
TYPED_FORMS = (
    *(DAYS, SECONDS, MILLIS, MICROS, NANOS, *OF_THE_DAY, ISO_TEXT, PLAIN_NUMBER, SCIENTIFIC),
    *(UNSCALED, DASHED, UNDASHED, UUID_BYTES, GUID_BYTES, OPAQUE_BYTES),
)
_EPOCH = date(1970, 1, 1)
_MAX_SCALE = 18
_UNITS = (10**9, 10**6, 10**3, 1)


@dataclass(frozen=True)
class Form:
    """One way in which a value is written. `body`: a text, a number, or bytes. `is_specific`: False if it is so short
    that it is found by chance everywhere, so that it counts only as a whole value of its columns."""

    name: str
    body: str | int | Decimal | bytes = field(repr=False)
    is_specific: bool


def forms_of(value: str, kind: ValueType, scale: int | None = None) -> tuple[Form, ...]:
    """Returns the forms of a value, as given first. `scale`: of the decimals of its column, if it is known. A value
    that is none of its type has one form: as given."""
    found: dict[tuple[type, object], Form] = {}
    for form in (_form(AS_GIVEN, value, kind is not ValueType.TIME), *_TYPED[kind](value, scale)):
        found.setdefault((type(form.body), form.body), form)
    return tuple(found.values())


def _form(name: str, body: str | int | Decimal | bytes, may_be_specific: bool = True) -> Form:
    if isinstance(body, str):
        size = len(body.encode("utf-8", "surrogatepass"))
        is_specific = size >= MIN_BYTES and (as_decimal(body) is None or size >= MIN_DIGITS)
    elif isinstance(body, bytes):
        is_specific = len(body) >= MIN_BYTES
    else:
        is_specific = sum(c.isdigit() for c in str(body)) >= MIN_DIGITS
    return Form(name, body, is_specific and may_be_specific)


def _text(value: str, scale: int | None) -> Iterator[Form]:
    del value, scale
    yield from ()


def _date(value: str, scale: int | None) -> Iterator[Form]:
    del scale
    day = as_date(value)
    if day is None:
        return
    days = (day - _EPOCH).days
    yield _form(DAYS, days)
    for name, unit in zip((SECONDS, MILLIS, MICROS, NANOS), (1, 10**3, 10**6, 10**9), strict=True):
        yield _form(name, days * 86_400 * unit)


def _time(value: str, scale: int | None) -> Iterator[Form]:
    """A time of the day is anybody's, in each of its forms."""
    del scale
    nanos = as_time(value)
    if nanos is None:
        return
    yield _form(ISO_TEXT, _clock(nanos), may_be_specific=False)
    for name, unit in zip(OF_THE_DAY, _UNITS, strict=True):
        if nanos % unit == 0:
            yield _form(name, nanos // unit, may_be_specific=False)


def _timestamp(value: str, scale: int | None) -> Iterator[Form]:
    del scale
    nanos = as_timestamp(value)
    if nanos is None:
        return
    day, rest = divmod(nanos, 86_400 * 10**9)
    # Statistics of Delta have milliseconds.
    for fraction in dict.fromkeys((rest, rest // 10**6 * 10**6)):
        for between in ("T", " "):
            yield _form(ISO_TEXT, f"{_EPOCH + timedelta(day)}{between}{_clock(fraction)}")
    # Connectors and Spark cut off what is finer than their unit.
    for name, unit in zip((SECONDS, MILLIS, MICROS, NANOS), _UNITS, strict=True):
        yield _form(name, nanos // unit)


def _integer(value: str, scale: int | None) -> Iterator[Form]:
    number = as_integer(value)
    if number is not None:
        yield _form(PLAIN_NUMBER, number)
        yield from _unscaled(Decimal(number), {0, scale or 0})


def _decimal(value: str, scale: int | None) -> Iterator[Form]:
    number = as_decimal(value)
    if number is None:
        return
    exact = number.normalize()
    plain = f"{exact:f}"
    yield _form(PLAIN_NUMBER, int(exact) if exact == exact.to_integral_value() else Decimal(plain))
    digits = "".join(map(str, exact.as_tuple().digits))
    mantissa = f"{'-' * (exact < 0)}{digits[0]}.{digits[1:] or '0'}"
    for exponent in {f"E{exact.adjusted()}", f"E{exact.adjusted():+}"}:
        yield _form(SCIENTIFIC, f"{mantissa}{exponent}", len(digits) >= MIN_DIGITS)
    least = max(0, -int(exact.as_tuple().exponent))
    yield from _unscaled(exact, {scale} if scale is not None else range(least, max(least, _MAX_SCALE) + 1))


def _unscaled(number: Decimal, scales: set[int] | set[int | None] | range) -> Iterator[Form]:
    """Yields the unscaled value in two's complement, most significant byte first, as Connect's Decimal holds it."""
    for scale in sorted(s for s in scales if s is not None):
        unscaled = number.scaleb(scale)
        if unscaled == unscaled.to_integral_value():
            whole = int(unscaled)
            size = (whole if whole >= 0 else ~whole).bit_length() // 8 + 1
            yield _form(UNSCALED, whole.to_bytes(size, signed=True), len(str(abs(whole)).rstrip("0")) >= MIN_DIGITS)


def _uuid(value: str, scale: int | None) -> Iterator[Form]:
    del scale
    identifier = as_uuid(value)
    if identifier is None:
        return
    yield _form(DASHED, str(identifier))
    yield _form(UNDASHED, identifier.hex)
    yield _form(UUID_BYTES, identifier.bytes)
    yield _form(GUID_BYTES, uuid.UUID(str(identifier)).bytes_le)


def _bytes(value: str, scale: int | None) -> Iterator[Form]:
    del scale
    body = as_bytes(value)
    if body is not None:
        yield _form(OPAQUE_BYTES, body)


def _clock(nanos: int) -> str:
    """Returns hours, minutes and seconds, and the fraction without zeros at its end."""
    seconds, fraction = divmod(nanos, 10**9)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{clock}.{fraction:09}".rstrip("0") if fraction else clock


_TYPED = {
    ValueType.TEXT: _text,
    ValueType.INTEGER: _integer,
    ValueType.DECIMAL: _decimal,
    ValueType.DATE: _date,
    ValueType.TIME: _time,
    ValueType.TIMESTAMP: _timestamp,
    ValueType.UUID: _uuid,
    ValueType.BYTES: _bytes,
}
