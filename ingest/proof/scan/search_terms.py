"""Search terms: the values of a subject, each with a label that is shown in its place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

from ingest.errors import ConfigError

MIN_BYTES = 6
"""Shorter values are found by chance in other people's data, and their base64 in any compressed file."""
MIN_DIGITS = 9
_EXAMPLE = 'write like {"email": "…", "member": {"value": 42, "columns": ["id", "member_id"]}}'


@dataclass(frozen=True)
class SearchTerm:
    """`columns`: if given, the value counts only as a whole value of these columns or JSON keys.

    Raises ConfigError, without showing a value, if the value is unspecific or the label contains it."""

    label: str
    value: str = field(repr=False)
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.label.strip() or not self.value or not all(self.columns):
            raise ConfigError("a searched value has an empty label, value or column", _EXAMPLE)
        if self.value.lower() in self.label.lower():
            raise ConfigError(
                "the label of a searched value holds the value, and labels are shown", "name what it is, such as email"
            )
        if not self.columns and self._is_unspecific:
            raise ConfigError(
                f"the searched value {self.label} is too short to be searched for everywhere: less than "
                f"{MIN_BYTES} bytes or {MIN_DIGITS} digits",
                f"name the columns in which it may stand; {_EXAMPLE}",
            )

    @property
    def number(self) -> Decimal | None:
        """Returns the value as a number; None if it isn't one."""
        try:
            number = Decimal(self.value)
        except InvalidOperation:
            return None
        return number if number.is_finite() else None

    @property
    def _is_unspecific(self) -> bool:
        size = len(self.value.encode("utf-8", "surrogatepass"))
        return size < MIN_BYTES or (self.number is not None and size < MIN_DIGITS)


def parse_search_terms(text: str) -> tuple[SearchTerm, ...]:
    """Parses a JSON object: label → a value, a list of values, or a value and its columns. Raises ConfigError, without
    showing a value."""
    try:
        document = json.loads(text, parse_float=str, parse_constant=str)
    except ValueError:
        # The parser's error would contain the text.
        document = None
    if not isinstance(document, dict) or not document:
        raise ConfigError("the searched values are not a JSON object that names each value", _EXAMPLE)
    return tuple(
        _term(label, one)
        for label, values in document.items()
        for one in (values if isinstance(values, list) else [values])
    )


def _term(label: str, given: Any) -> SearchTerm:
    fields: Mapping[str, Any] = given if isinstance(given, dict) else {"value": given}
    value, columns = fields.get("value"), fields.get("columns", [])
    unknown = set(fields) - {"value", "columns"}
    if unknown or isinstance(value, bool) or not isinstance(value, str | int) or not isinstance(columns, list):
        raise ConfigError(f"the searched value {label} is neither a text nor a number, nor one with columns", _EXAMPLE)
    if not all(isinstance(c, str) for c in columns):
        raise ConfigError(f"the searched value {label} has columns that are no names", _EXAMPLE)
    return SearchTerm(label, str(value), tuple(columns))
