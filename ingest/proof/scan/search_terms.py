"""Search terms: the values of a subject, each with a label that is shown in its place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any

from ingest.errors import ConfigError
from ingest.proof.forms import Form, ValueType, forms_of, inferred_type
from ingest.proof.forms.typed_forms import MIN_BYTES, MIN_DIGITS
from ingest.proof.forms.value_types import as_decimal, is_of

_EXAMPLE = (
    'write like {"email": "…", "member": {"value": 42, "columns": ["id", "member_id"]}, '
    '"born": {"value": "1961-02-03", "type": "date"}}'
)
_FIELDS = {"value", "columns", "type"}


@dataclass(frozen=True)
class SearchTerm:
    """`columns`: if given, the value counts only as a whole value of these columns or JSON keys. `type`: if None, that
    in which the value is written. `table`: the only table whose columns they are; empty for columns of any.

    Raises ConfigError, without showing a value, if the value is unspecific, none of its type, or in the label."""

    label: str
    value: str = field(repr=False)
    columns: tuple[str, ...] = ()
    type: ValueType | None = None
    table: str = ""
    is_collected: bool = False
    """True if the value was collected from data, and the label is the name of its column."""

    def __post_init__(self) -> None:
        if not self.label.strip() or not self.value or not all(self.columns):
            raise ConfigError("a searched value has an empty label, value or column", _EXAMPLE)
        if not self.is_collected and self.value.lower() in self.label.lower():
            raise ConfigError(
                "the label of a searched value holds the value, and labels are shown", "name what it is, such as email"
            )
        if self.type is not None and not is_of(self.value, self.type):
            raise ConfigError(
                f"the searched value {self.label} is no {self.type}",
                "write dates like 1961-02-03, times like 04:05:06.789, timestamps like 1961-02-03T04:05:06.789Z, "
                "numbers like -12.50, bytes in hexadecimal or base64",
            )
        if not self.columns and is_unspecific(self.value):
            raise ConfigError(
                f"the searched value {self.label} is too short to be searched for everywhere: less than "
                f"{MIN_BYTES} bytes or {MIN_DIGITS} digits",
                f"name the columns in which it may stand; {_EXAMPLE}",
            )

    @property
    def number(self) -> Decimal | None:
        """Returns the value as a number; None if it isn't one."""
        return as_decimal(self.value)

    @property
    def value_type(self) -> ValueType:
        return self.type or inferred_type(self.value)

    @cached_property
    def forms(self) -> tuple[Form, ...]:
        """Returns the forms of the value, as given first."""
        return forms_of(self.value, self.value_type)

    @property
    def short_columns(self) -> tuple[str, ...]:
        """Returns the columns in which forms count that are found everywhere by chance: those of the term or, if it
        names none, one with the name of its label."""
        return self.columns or (self.label,)


def is_unspecific(value: str) -> bool:
    """Returns True for a value that is so short that other people's data hold it by chance."""
    size = len(value.encode("utf-8", "surrogatepass"))
    return size < MIN_BYTES or (as_decimal(value) is not None and size < MIN_DIGITS)


def parse_search_terms(text: str) -> tuple[SearchTerm, ...]:
    """Parses a JSON object: label → a value, a list of values, or a value with its columns and type. Raises
    ConfigError, without showing a value."""
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
    value, columns, kind = fields.get("value"), fields.get("columns", []), fields.get("type")
    unknown = set(fields) - _FIELDS
    if unknown or isinstance(value, bool) or not isinstance(value, str | int) or not isinstance(columns, list):
        raise ConfigError(f"the searched value {label} is neither a text nor a number, nor one with columns", _EXAMPLE)
    if not all(isinstance(c, str) for c in columns):
        raise ConfigError(f"the searched value {label} has columns that are no names", _EXAMPLE)
    if kind is not None and kind not in list(map(str, ValueType)):
        raise ConfigError(f"the searched value {label} has an unknown type", f"types are {', '.join(ValueType)}")
    return SearchTerm(label, str(value), tuple(columns), None if kind is None else ValueType(kind))
