"""Columns as Postgres' own messages tell them: types by the names of `format_type`, values as `to_json` writes them.

The logical types are those of events by the recipe's settings (`ingest.connector.recipe`). A type that is not listed
has none until an event shows it.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from dataclasses import replace
from decimal import Decimal
from typing import Any

from ingest.changelog.connect_schema import declared_column
from ingest.values.columns import Column
from ingest.values.types import FLOATS, INTEGERS, Kind, LogicalType

_DECLARED = {
    "smallint": "int16",
    "integer": "int32",
    "bigint": "int64",
    "real": "float32",
    "double precision": "float64",
    "boolean": "boolean",
    "text": "string",
    "character varying": "string",
    "character": "string",
    "bytea": "bytes",
    "date": "date",
    "time without time zone": "time",
    "time with time zone": "time_tz",
    "timestamp without time zone": "timestamp",
    "timestamp with time zone": "timestamp_tz",
    "interval": "interval_iso",
    "uuid": "uuid",
    "json": "json",
    "jsonb": "json",
    "xml": "xml",
}
_NUMERIC = re.compile(r"numeric\((\d+),(\d+)\)")
_FORMS = {
    Kind.DATE: re.compile(r"\d{4}-\d\d-\d\d"),
    Kind.TIME: re.compile(r"\d\d:\d\d:\d\d(\.\d+)?"),
    Kind.TIMESTAMP: re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?"),
    Kind.TIMESTAMP_TZ: re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00|-?infinity"),
    **dict.fromkeys((Kind.STRING, Kind.UUID, Kind.ENUM, Kind.XML), re.compile(r"(?s).*")),
}
"""Texts that mean the same in a message and in a column as it is declared."""


def told_column(name: str, type_: str, base: str, is_enum: bool = False) -> Column | None:
    """Returns a column by its type with and without modifiers; None if only an event can show its logical type."""
    declared = "enum" if is_enum else _declared(type_, base)
    return None if declared is None else declared_column(name, declared)


def _declared(type_: str, base: str) -> str | None:
    if base.endswith("[]"):
        element = _declared(type_.removesuffix("[]"), base.removesuffix("[]"))
        return None if element is None else f"array<{element}>"
    if base == "numeric":
        digits = _NUMERIC.fullmatch(type_)
        return f"decimal({digits[1]},{digits[2]})" if digits else "decimal" if type_ == base else None
    return _DECLARED.get(base)


def with_default(column: Column, value: Any) -> Column | None:
    """Returns the column with a value of a message as its default; None for a value that has another form there.

    `value`: as JSON, numbers with a point as Decimal."""
    try:
        written = _written(value, column.type)
    except ValueError:
        return None
    return replace(column, default=written, has_default=True)


def _written(value: Any, type_: LogicalType) -> str:
    """Returns the JSON text of a value in its column's encoding. Raises ValueError for a value of another form."""
    match value:
        case None:
            return "null"
        case list() if type_.kind is Kind.ARRAY:
            return f"[{','.join(_written(element, type_.elements[0]) for element in value)}]"
        case bool() if type_.kind is Kind.BOOLEAN:
            return json.dumps(value)
        case int() if not isinstance(value, bool) and type_.kind in (*INTEGERS, *FLOATS):
            return str(value)
        case Decimal() if type_.kind in FLOATS:
            return str(value)
        case "NaN" | "Infinity" | "-Infinity" if type_.kind in FLOATS:
            return json.dumps(value)
        case int() | Decimal() if not isinstance(value, bool) and type_.kind in (Kind.DECIMAL, Kind.DECIMAL_TEXT):
            return json.dumps(f"{value:f}" if isinstance(value, Decimal) else str(value))
        case str() if type_.kind is Kind.BYTES and value.startswith("\\x"):
            return json.dumps(b64encode(bytes.fromhex(value[2:])).decode())
        case str() if type_.kind in _FORMS and _FORMS[type_.kind].fullmatch(value):
            return json.dumps(value, ensure_ascii=False)
        case _:
            raise ValueError(f"a value of {type_} has another form in a message")
