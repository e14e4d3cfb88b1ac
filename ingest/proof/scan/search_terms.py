"""What is looked for: a subject's values, each with a label that may be shown in its place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

from ingest.errors import ConfigError

LEAST_BYTES = 6
"""A shorter value is found by chance in other people's data, and its base64 in any compressed file."""
LEAST_DIGITS = 9
_LIKE = 'write like {"email": "…", "member": {"value": 42, "columns": ["id", "member_id"]}}'


@dataclass(frozen=True)
class Needle:
    """`columns`: where they are named, the value counts there alone, as a whole value of a column or of a JSON key.

    Raises ConfigError, which shows no value, where a value would be found by chance or the label tells it.
    """

    label: str
    value: str = field(repr=False)
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.label.strip() or not self.value or not all(self.columns):
            raise ConfigError("a needle has an empty label, value or column", _LIKE)
        if self.value.lower() in self.label.lower():
            raise ConfigError(
                "a needle's label holds its value, and labels are shown", "name what it is, such as email"
            )
        if not self.columns and self._found_by_chance:
            raise ConfigError(
                f"the needle {self.label} is too short to be looked for everywhere: less than {LEAST_BYTES} bytes or "
                f"{LEAST_DIGITS} digits",
                f"name the columns whose values it may be; {_LIKE}",
            )

    @property
    def number(self) -> Decimal | None:
        """The value as a number, where it is one."""
        try:
            parsed = Decimal(self.value)
        except InvalidOperation:
            return None
        return parsed if parsed.is_finite() else None

    @property
    def _found_by_chance(self) -> bool:
        size = len(self.value.encode("utf-8", "surrogatepass"))
        return size < LEAST_BYTES or (self.number is not None and size < LEAST_DIGITS)


def parsed(text: str) -> tuple[Needle, ...]:
    """Of a JSON object: label → a value, several, or a value and its columns. Raises ConfigError without any value."""
    try:
        said = json.loads(text, parse_float=str, parse_constant=str)
    except ValueError:
        # The error of the parser would bring the text along.
        said = None
    if not isinstance(said, dict) or not said:
        raise ConfigError("the needles are not a JSON object that names each value", _LIKE)
    return tuple(
        _needle(label, one)
        for label, values in said.items()
        for one in (values if isinstance(values, list) else [values])
    )


def _needle(label: str, said: Any) -> Needle:
    given: Mapping[str, Any] = said if isinstance(said, dict) else {"value": said}
    value, columns = given.get("value"), given.get("columns", [])
    unknown = set(given) - {"value", "columns"}
    if unknown or isinstance(value, bool) or not isinstance(value, str | int) or not isinstance(columns, list):
        raise ConfigError(f"the needle {label} is neither a text nor a number, nor one with columns", _LIKE)
    if not all(isinstance(c, str) for c in columns):
        raise ConfigError(f"the needle {label} has columns that are no names", _LIKE)
    return Needle(label, str(value), tuple(columns))
