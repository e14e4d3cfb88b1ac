"""Conversions of values as Postgres' assignment casts make them (`ALTER COLUMN … TYPE` without USING), for the types
that the reference knows. Values are Python's: int, float, Decimal, bool, str, date, datetime, list."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

from ingest.testing.source_table import UNKNOWN

ALIASES = {
    "int": "integer",
    "double": "double precision",
    "varchar": "character varying",
    "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
}
"""Short names of types → Postgres' own."""

ASSIGNMENT_CASTS: dict[str, tuple[str, ...]] = {
    "smallint": ("integer", "bigint", "numeric", "numeric(10,2)", "double precision", "text"),
    "integer": ("bigint", "numeric", "numeric(10,2)", "double precision", "text"),
    "bigint": ("numeric", "numeric(40,3)", "text"),
    "real": ("double precision",),
    "double precision": ("numeric(10,2)",),
    "numeric(10,2)": ("numeric", "numeric(40,3)", "text"),
    "numeric(40,3)": ("text",),
    "boolean": ("text",),
    "character varying(20)": ("text",),
    "date": ("timestamp without time zone", "timestamp with time zone", "text"),
    "timestamp(3) without time zone": ("timestamp without time zone", "text"),
    "timestamp without time zone": ("timestamp with time zone", "text"),
    "timestamp with time zone": ("text",),
    "uuid": ("text",),
    "mood": ("text",),
    "jsonb": ("text",),
    "ltree": ("text",),
    "integer[]": ("bigint[]", "text[]"),
}
"""Type → types to which random tables change it. Every pair is known to `cast`."""

_WIDE = Context(prec=200)
_INTEGERS = {"smallint": 15, "integer": 31, "bigint": 63}
_FAMILIES = {
    **dict.fromkeys(_INTEGERS, "integer"),
    **dict.fromkeys(("real", "double precision"), "float"),
    **dict.fromkeys(("text", "character varying"), "text"),
}


def cast(value: Any, type_: str) -> Any:
    """Returns `value::type_`, with UTC as the session's time zone; UNKNOWN for a pair of types that the reference does
    not know. Raises ValueError where the source refuses the value."""
    if value is None or value is UNKNOWN or not type_:
        return value
    if isinstance(value, list):
        return [cast(element, type_.removesuffix("[]")) for element in value] if type_.endswith("[]") else UNKNOWN
    word, arguments = re.sub(r"\([\d,]+\)", "", type_), re.findall(r"\d+", type_)
    base = ALIASES.get(word, word)
    convert = _CASTS.get((_kind(value), _FAMILIES.get(base, base)))
    return UNKNOWN if convert is None else convert(value, base, [*map(int, arguments)])


def _kind(value: Any) -> str:
    if isinstance(value, datetime):
        return "timestamp" if value.tzinfo is None else "timestamptz"
    return type(value).__name__


def _integer(value: Any, base: str, _: list[int]) -> int:
    number = int(Decimal(value).to_integral_value(ROUND_HALF_UP))
    if not -(2 ** _INTEGERS[base]) <= number < 2 ** _INTEGERS[base]:
        raise ValueError(f"{value} is out of range of {base}")
    return number


def _numeric(value: Any, _: str, arguments: list[int]) -> Decimal:
    # Postgres converts a double by its 15 significant digits.
    exact = Decimal(f"{value:.15g}" if isinstance(value, float) else value)
    if not arguments:
        return exact
    precision, scale = [*arguments, 0][:2]
    limit = 10 ** (precision - scale)
    if abs(exact) >= limit or abs(rounded := exact.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _WIDE)) >= limit:
        raise ValueError(f"{value} has too many digits for numeric({precision},{scale})")
    return rounded


def _text(value: Any, _: str, arguments: list[int]) -> str:
    text = _TEXTS.get(_kind(value), str)(value)
    if arguments and len(text) > arguments[0]:
        raise ValueError(f"{text!r} is too long for character varying({arguments[0]})")
    return text


def _moment_text(value: datetime) -> str:
    text = value.replace(tzinfo=None).isoformat(" ")
    return text.rstrip("0") if "." in text else text


_TEXTS: dict[str, Callable[[Any], str]] = {
    "bool": lambda v: str(v).lower(),
    "Decimal": lambda v: format(v, "f"),
    "date": date.isoformat,
    "timestamp": _moment_text,
    "timestamptz": lambda v: f"{_moment_text(v.astimezone(UTC))}+00",
}
_CASTS: dict[tuple[str, str], Callable[[Any, str, list[int]], Any]] = {
    **{(kind, "integer"): _integer for kind in ("int", "float", "Decimal", "bool")},
    **{(kind, "numeric"): _numeric for kind in ("int", "float", "Decimal")},
    **{(kind, "float"): lambda v, *_: float(v) for kind in ("int", "float", "Decimal")},
    **{(kind, "text"): _text for kind in ("int", "Decimal", "bool", "str", "date", "timestamp", "timestamptz")},
    ("int", "boolean"): lambda v, *_: v != 0,
    ("bool", "boolean"): lambda v, *_: v,
    ("date", "timestamp without time zone"): lambda v, *_: datetime.combine(v, time()),
    ("date", "timestamp with time zone"): lambda v, *_: datetime.combine(v, time(), UTC),
    ("timestamp", "timestamp without time zone"): lambda v, *_: v,
    ("timestamp", "timestamp with time zone"): lambda v, *_: v.replace(tzinfo=UTC),
    ("str", "uuid"): lambda v, *_: v.lower(),
}
