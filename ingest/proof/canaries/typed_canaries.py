"""Canaries of the forms that depend on a value's type, each written by Python's own libraries."""

from __future__ import annotations

import base64
import calendar
import io
import json
import secrets
import uuid
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ingest.proof.canaries.canary import Canary
from ingest.proof.forms import ValueType, typed_forms
from ingest.proof.scan.search_terms import SearchTerm


def typed_canaries() -> tuple[Canary, ...]:
    """Returns a canary per typed form, with values never used before."""
    return tuple(_canary(*one) for one in _TYPED)


def typed_columns(canaries: tuple[Canary, ...]) -> bytes:
    """Returns a Parquet file in which each of the canaries is a value of a column of its type."""
    columns = {
        c.term.columns[0]: pa.array([_TYPED_VALUES[c.encoding](c.term.value)]) for c in canaries if _has_column(c)
    }
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out, use_dictionary=False, write_statistics=False)
    return out.getvalue()


def in_typed_columns(canaries: tuple[Canary, ...]) -> tuple[Canary, ...]:
    """Returns the canaries that `typed_columns` writes."""
    return tuple(c for c in canaries if _has_column(c))


def _has_column(canary: Canary) -> bool:
    return canary.encoding in _TYPED_VALUES and canary.term.type in (ValueType.DATE, ValueType.TIME, ValueType.DECIMAL)


def _canary(kind: ValueType, form: str, make: Callable[[], str], encode: Callable[[str], object]) -> Canary:
    name = f"canary: {kind}, {form}"
    column = f"canary_{secrets.token_hex(8)}"
    value = make()
    written = encode(value)
    if isinstance(written, bytes):
        return Canary(SearchTerm(name, value, (), kind), form, b"<%s>" % written)
    return Canary(SearchTerm(name, value, (column,), kind), form, json.dumps({column: written}).encode())


def _day() -> str:
    return date.fromordinal(date(1901, 1, 1).toordinal() + secrets.randbelow(60_000)).isoformat()


def _clock() -> str:
    return time(secrets.randbelow(24), secrets.randbelow(60), 7, 123_000 + secrets.randbelow(10) * 1000).isoformat()


def _whole_clock() -> str:
    return time(secrets.randbelow(24), secrets.randbelow(60), 7).isoformat()


def _moment() -> str:
    return f"{_day()}T{_clock()[:12]}Z"


def _amount() -> str:
    return f"-{secrets.randbelow(9000) + 1000}.50"


def _identifier() -> str:
    return str(uuid.uuid4())


def _seconds(text: str) -> int:
    return calendar.timegm(datetime.fromisoformat(text.replace("Z", "")).timetuple())


def _of_the_day(text: str) -> int:
    clock = time.fromisoformat(text)
    return ((clock.hour * 60 + clock.minute) * 60 + clock.second) * 10**6 + clock.microsecond


def _days(text: str) -> int:
    return date.fromisoformat(text).toordinal() - date(1970, 1, 1).toordinal()


def _unscaled(text: str) -> str:
    return base64.b64encode(int(Decimal(text) * 100).to_bytes(3, "big", signed=True)).decode()


def _opaque() -> str:
    return secrets.token_hex(12)


_TYPED: tuple[tuple[ValueType, str, Callable[[], str], Callable[[str], object]], ...] = (
    (ValueType.DATE, typed_forms.DAYS, _day, _days),
    (ValueType.DATE, typed_forms.SECONDS, _day, _seconds),
    (ValueType.DATE, typed_forms.MILLIS, _day, lambda v: _seconds(v) * 10**3),
    (ValueType.DATE, typed_forms.MICROS, _day, lambda v: _seconds(v) * 10**6),
    (ValueType.DATE, typed_forms.NANOS, _day, lambda v: _seconds(v) * 10**9),
    (ValueType.TIMESTAMP, typed_forms.MILLIS, _moment, lambda v: _seconds(v) * 10**3 + int(v[20:23])),
    (ValueType.TIMESTAMP, typed_forms.MICROS, _moment, lambda v: _seconds(v) * 10**6 + int(v[20:23]) * 10**3),
    (ValueType.TIMESTAMP, typed_forms.NANOS, _moment, lambda v: _seconds(v) * 10**9 + int(v[20:23]) * 10**6),
    (ValueType.TIMESTAMP, typed_forms.ISO_TEXT, _moment, lambda v: v.replace("T", " ").replace("Z", "000+00:00")),
    (ValueType.TIME, typed_forms.ISO_TEXT, _clock, lambda v: v.rstrip("0")),
    (ValueType.TIME, typed_forms.OF_THE_DAY[0], _whole_clock, lambda v: _of_the_day(v) // 10**6),
    (ValueType.TIME, typed_forms.OF_THE_DAY[1], _clock, lambda v: _of_the_day(v) // 10**3),
    (ValueType.TIME, typed_forms.OF_THE_DAY[2], _clock, _of_the_day),
    (ValueType.TIME, typed_forms.OF_THE_DAY[3], _clock, lambda v: _of_the_day(v) * 10**3),
    (ValueType.DECIMAL, typed_forms.PLAIN_NUMBER, _amount, float),
    (ValueType.DECIMAL, typed_forms.SCIENTIFIC, _amount, lambda v: f"{Decimal(v).normalize():E}"),
    (ValueType.DECIMAL, typed_forms.UNSCALED, _amount, lambda v: {"scale": 2, "value": _unscaled(v)}),
    (ValueType.UUID, typed_forms.DASHED, lambda: _identifier().replace("-", ""), lambda v: str(uuid.UUID(v)).encode()),
    (ValueType.UUID, typed_forms.UNDASHED, _identifier, lambda v: uuid.UUID(v).hex.upper().encode()),
    (ValueType.UUID, typed_forms.UUID_BYTES, _identifier, lambda v: uuid.UUID(v).bytes),
    (ValueType.UUID, typed_forms.GUID_BYTES, _identifier, lambda v: uuid.UUID(v).bytes_le),
    (ValueType.BYTES, typed_forms.OPAQUE_BYTES, _opaque, bytes.fromhex),
)
_TYPED_VALUES: dict[str, Callable[[str], Any]] = {
    typed_forms.DAYS: _days,
    typed_forms.SECONDS: _seconds,
    typed_forms.MILLIS: lambda v: _seconds(v) * 10**3,
    typed_forms.MICROS: lambda v: _seconds(v) * 10**6,
    typed_forms.NANOS: lambda v: _seconds(v) * 10**9,
    typed_forms.OF_THE_DAY[1]: lambda v: _of_the_day(v) // 10**3,
    typed_forms.OF_THE_DAY[2]: _of_the_day,
    typed_forms.PLAIN_NUMBER: Decimal,
}
