"""A type of a source's columns: some of its values, and how a connector writes them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from decimal import Context, Decimal
from hashlib import md5
from typing import Any
from uuid import UUID

_WIDE = Context(prec=100)
_EPOCH = datetime(1970, 1, 1)
_MOMENTS = (
    datetime(2026, 3, 1),
    datetime(2026, 3, 1, 0, 0, 0, 1),
    datetime(1969, 12, 31, 23, 59, 59, 999_000),
    datetime(1500, 1, 1, 12),
)
TIME, DATA, CONNECT = "io.debezium.time.", "io.debezium.data.", "org.apache.kafka.connect.data."


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class SourceType:
    """A type of a source's columns.

    Attributes:
        schema: its schema in Kafka Connect, without name and optionality of a field.
        values: some values: int, float, Decimal, bool, str, bytes, date, datetime, list and dict.
        wire: value → JSON, as a connector writes it.
        read: JSON, as `ingest replay` writes it → value.
        declared: the type to declare for records without schemas; empty if it can't be declared.
        is_key: a column of this type may be part of a key.
        is_large: its values may be TOASTed, and so be unavailable in an image.
        has_defaults: schemas show a constant default of such a column.
    """

    schema: Mapping[str, Any]
    values: tuple[Any, ...]
    wire: Callable[[Any], Any] = _same
    read: Callable[[Any], Any] = _same
    declared: str = ""
    is_key: bool = False
    is_large: bool = False
    has_defaults: bool = field(default=True, kw_only=True)

    @property
    def defaults(self) -> list[Any]:
        """Values that a schema shows as a default: not the epoch, which it shows for a function too."""
        return [value for value in self.values if value != _EPOCH.date()]


def named(kind: str, name: str, **parameters: str) -> dict[str, Any]:
    """Returns the schema of a semantic type."""
    return {"type": kind, "name": name, "version": 1} | ({"parameters": parameters} if parameters else {})


def _base64(number: int) -> str:
    return b64encode(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)).decode()


def _unscaled(value: Decimal, scale: int) -> str:
    return _base64(int(_WIDE.scaleb(value, scale)))


def decimal_type(precision: int | None, scale: int, *texts: str) -> SourceType:
    """Returns Connect's Decimal. `precision`: None where Debezium leaves it out. `texts`: the values."""
    digits = {} if precision is None else {"connect.decimal.precision": str(precision)}
    schema = named("bytes", f"{CONNECT}Decimal", scale=str(scale), **digits)
    declared = f"decimal_from_base64({precision or 38},{scale})"
    return SourceType(schema, tuple(map(Decimal, texts)), lambda v: _unscaled(v, scale), read_decimal, declared)


def read_decimal(text: Any) -> Decimal:
    """Returns the exact number that JSON holds as text or as a number."""
    return Decimal(str(text))


def variable_decimal(value: Decimal) -> dict[str, Any]:
    """Returns Debezium's VariableScaleDecimal of a number."""
    scale = max(-int(value.as_tuple().exponent), 0)
    return {"scale": scale, "value": _unscaled(value, scale)}


def written_decimal_type(known: SourceType, length: int, scale: int) -> SourceType:
    """Returns the type as `decimal.handling.mode=string` writes it, with the type at the source in its parameters."""
    propagated = {"type": "NUMERIC"} | ({"length": str(length), "scale": str(scale)} if length else {})
    parameters = {f"__debezium.source.column.{name}": value for name, value in propagated.items()}
    declared = f"decimal({length},{scale})" if 0 < length <= 38 else "decimal"
    schema = {"type": "string", "parameters": parameters}
    return replace(known, schema=schema, wire=lambda v: format(v, "f"), declared=declared if length else "decimal_text")


def text_type(name: str | None, *values: str, declared: str = "string", **more: Any) -> SourceType:
    """Returns a type of texts. `name`: the semantic type, if it has one."""
    return SourceType({"type": "string"} if name is None else named("string", name), values, declared=declared, **more)


def number_type(kind: str, *values: Any, logical: str = "", is_key: bool = False) -> SourceType:
    """Returns a type that JSON writes as it is. `kind`: Connect's name. `logical`: the declared type, if it differs."""
    return SourceType({"type": kind}, values, read=_number, declared=logical or kind, is_key=is_key)


def _number(value: Any) -> Any:
    """Returns a number of JSON, or that of a text: a column that once held decimals of any scale stays one of these."""
    return Decimal(value) if isinstance(value, str) else value


def _micros(value: datetime) -> int:
    return (value.replace(tzinfo=None) - _EPOCH) // timedelta(microseconds=1)


def iso_text(value: datetime) -> str:
    """Returns an ISO timestamp with a Z, as Debezium writes one without a time zone too."""
    return value.replace(tzinfo=None).isoformat() + "Z"


def _time_micros(text: str) -> int:
    hours, minutes, seconds = text.split(":")
    return (int(hours) * 60 + int(minutes)) * 60_000_000 + int(Decimal(seconds) * 1_000_000)


def timestamp_type(
    schema: dict[str, Any], micros: int, declared: str, wire: Callable[[datetime], Any] | None = None
) -> SourceType:
    """Returns a type of timestamps, written as numbers or by `wire`. `micros`: their unit in microseconds; 0 for
    nanoseconds."""
    unit = max(micros, 1)
    moments = [m for m in _MOMENTS if micros or m.year > 1677]  # what 64 bits of nanoseconds hold
    exact = [m.replace(microsecond=m.microsecond // unit * unit) for m in moments]

    def units(value: datetime) -> int:
        return _micros(value) // micros if micros else _micros(value) * 1000

    return SourceType(schema, tuple(dict.fromkeys(exact)), wire or units, datetime.fromisoformat, declared)


def time_type(
    schema: dict[str, Any], micros: int, declared: str, wire: Callable[[str], Any] | None = None
) -> SourceType:
    """Returns a type of times of day, held as texts, with units as of `timestamp_type`."""
    values = ("00:00:00", "01:00:00", "23:59:59.999") + (("12:34:56.000001",) if micros < 1000 else ())

    def units(value: str) -> int:
        return _time_micros(value) // micros if micros else _time_micros(value) * 1000

    return SourceType(schema, values, wire or units, str, declared)


def date_type(schema: dict[str, Any], declared: str, wire: Callable[[date], Any] | None = None) -> SourceType:
    """Returns a type of dates, written as days since 1970 or by `wire`."""
    values = (date(2026, 3, 1), date(1970, 1, 1), date(1500, 2, 28), date(2400, 2, 29))
    return SourceType(schema, values, wire or (lambda v: (v - date(1970, 1, 1)).days), _date, declared)


def _date(text: str) -> date:
    """Returns the date of a date or of a midnight: a column that once held timestamps stays one of these."""
    found = datetime.fromisoformat(text)
    if found != datetime.combine(found, datetime.min.time()):
        raise ValueError(f"{text} is not a date")
    return found.date()


def array_of(element: SourceType, *values: list[Any]) -> SourceType:
    """Returns the type of arrays of a type's values and null."""

    def each(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda values: [None if value is None else convert(value) for value in values]

    schema = {"type": "array", "items": {**element.schema, "optional": True}}
    arrays = values or ([*element.values[:2], None], [], [element.values[0]])
    declared = element.declared and f"array<{element.declared}>"
    return SourceType(
        schema, arrays, each(element.wire), each(element.read), declared, is_large=True, has_defaults=False
    )


def bits_text(value: int) -> str:
    """Returns bit strings of up to 16 bits as Debezium writes them, least significant byte first."""
    return b64encode(value.to_bytes(2, "little")).decode()


PLACEHOLDER = "__debezium_unavailable_value"
"""Debezium's default of `unavailable.value.placeholder`."""


def unavailable(schema: Mapping[str, Any]) -> Any:
    """Returns the JSON of a value that the log does not hold, in a column with this schema."""
    match schema["type"], schema.get("name"):
        case "string", "io.debezium.data.Uuid":
            return str(UUID(bytes=md5(PLACEHOLDER.encode(), usedforsecurity=False).digest(), version=3))
        case "bytes", _:
            return b64encode(PLACEHOLDER.encode()).decode()
        case "map", _:
            return {PLACEHOLDER: PLACEHOLDER}
        case "array", _ if schema["items"]["type"] in ("int32", "int64"):
            return [*PLACEHOLDER.encode()]
        case "array", _:
            return [unavailable(schema["items"])]
        case _:
            return PLACEHOLDER
