"""Compares a merged table with the expected rows of a case. Each value is read by the type that the case declares."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from pathlib import Path
from struct import pack, unpack
from typing import Any

_WIDE = Context(prec=60)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Returns the rows of a JSON lines file, with exact numbers."""
    return [json.loads(line, parse_float=Decimal) for line in path.read_text(encoding="utf-8").splitlines()]


def _iso(moment: datetime) -> str:
    text = moment.replace(tzinfo=None).isoformat()
    return text.rstrip("0").rstrip(".") if "." in text else text


def _instant(value: str) -> datetime:
    return datetime.fromisoformat(value)


def _single(value: Any) -> float:
    return float(unpack("f", pack("f", float(value)))[0])


def _decimal(scale: int | None) -> Callable[[Any], Decimal]:
    def read(value: Any) -> Decimal:
        exact = Decimal(value)
        return exact if scale is None else exact.quantize(Decimal(1).scaleb(-scale), context=_WIDE)

    return read


def _timestamp(units: int) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        return value if isinstance(value, str) else _iso(_EPOCH + timedelta(microseconds=value * units))

    return read


def _time(units: int) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if isinstance(value, str):
            return value
        return _iso(_EPOCH + timedelta(microseconds=value * units))[11:]

    return read


_READERS: dict[str, Callable[[Any], Any]] = {
    "string": str,
    "float32": _single,
    "float64": float,
    "decimal": _decimal(None),
    "boolean_from_int": bool,
    "time_from_micros": _time(1),
    "timestamp_from_micros": _timestamp(1),
    "timestamp_from_millis": _timestamp(1000),
    "timestamp_tz": _instant,
    "json": lambda v: json.dumps(json.loads(v) if isinstance(v, str) else v, sort_keys=True),
}


def read(value: Any, logical: str) -> Any:
    """Returns a value, read by its declared type, in a form that compares and hashes."""
    if value is None:
        return None
    if logical.startswith("decimal(") and logical[8:-1].split(",")[-1].isdigit():
        return _decimal(int(logical[8:-1].split(",")[-1]))(value)
    plain = _READERS.get(logical, lambda v: v)(value)
    return json.dumps(plain, sort_keys=True, default=str) if isinstance(plain, list | dict) else plain


def multiset(rows: list[dict[str, Any]], columns: dict[str, str]) -> Counter[tuple[Any, ...]]:
    """Returns rows as a multiset over the declared columns."""
    return Counter(tuple(read(row.get(name), kind) for name, kind in columns.items()) for row in rows)
