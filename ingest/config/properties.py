"""Properties of other systems (Kafka, Spark), passed through unchanged and shown without secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import GetPydanticSchema
from pydantic_core import PydanticCustomError, core_schema

REDACTED = "********"
_SECRET_KEY = re.compile(r"password|passphrase|secret|token|jaas|key|credential|user\.info", re.IGNORECASE)


def is_secret(key: str) -> bool:
    """Returns True if the value of the property `key` must never be shown. Errs towards True."""
    return _SECRET_KEY.search(key) is not None


class Properties(Mapping[str, str]):
    """An immutable mapping of property names to values. A secret is returned by a lookup only, never by `repr`."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._values = dict(values or {})

    def __getitem__(self, key: str) -> str:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __repr__(self) -> str:
        return f"Properties({self.shown()!r})"

    def shown(self) -> dict[str, str]:
        """Returns the properties with each secret replaced by asterisks."""
        return {key: REDACTED if is_secret(key) else value for key, value in self._values.items()}


def _parse(raw: Any) -> Properties:
    """Returns properties from YAML; numbers and booleans are written as Java reads them."""
    if isinstance(raw, Properties):
        return raw
    if not isinstance(raw, Mapping):
        raise PydanticCustomError("properties", "should be a mapping of property names to values")
    values: dict[str, str] = {}
    for key, value in raw.items():
        if not isinstance(key, str):
            raise PydanticCustomError("properties", "should hold only text as property names")
        if isinstance(value, bool):
            values[key] = str(value).lower()
        elif isinstance(value, str | int | float):
            values[key] = str(value)
        else:
            raise PydanticCustomError(
                "properties", "the value of '{key}' should be one text, number or boolean", {"key": key}
            )
    return Properties(values)


def _schema(_source: object, _handler: object) -> core_schema.CoreSchema:
    """Returns the schema of a flat mapping; a dumped model holds no secret."""
    scalar = core_schema.union_schema(
        [
            core_schema.str_schema(),
            core_schema.int_schema(),
            core_schema.float_schema(),
            core_schema.bool_schema(),
        ]
    )
    return core_schema.json_or_python_schema(
        json_schema=core_schema.dict_schema(core_schema.str_schema(), scalar),
        python_schema=core_schema.no_info_plain_validator_function(_parse),
        serialization=core_schema.plain_serializer_function_ser_schema(Properties.shown),
    )


PropertiesField = Annotated[Properties, GetPydanticSchema(_schema)]
