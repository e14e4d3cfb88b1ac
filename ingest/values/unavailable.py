"""Recognizes Debezium's placeholder for an unavailable value (an unchanged TOASTed one) in each encoding.

Source: io.debezium.connector.postgresql.UnchangedToastedPlaceholder, and the connector option
`unavailable.value.placeholder` (text, or `hex:` and the bytes in hexadecimal).
"""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from dataclasses import dataclass

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from ingest.errors import ConfigError
from ingest.values.columns import NUMBERS, Encoding, WireType
from ingest.values.decimals import text_of
from ingest.values.types import Kind

_VARIANTS = (Encoding.DECIMAL_UNSCALED, Encoding.DECIMAL_PLAIN)


@dataclass(frozen=True)
class _Placeholder:
    raw: bytes

    @property
    def text(self) -> str:
        return self.raw.decode("utf-8", "replace")

    @property
    def texts(self) -> tuple[str, ...]:
        """The placeholder as a string, and as bytes in each `binary.handling.mode`."""
        safe = base64.urlsafe_b64encode(self.raw).decode()
        return self.text, base64.b64encode(self.raw).decode(), safe, self.raw.hex()

    @property
    def uuid(self) -> str:
        """The placeholder as a UUID, by Java's UUID.nameUUIDFromBytes: version 3 without a namespace."""
        return str(uuid.UUID(bytes=hashlib.md5(self.raw, usedforsecurity=False).digest(), version=3))

    @property
    def numbers(self) -> tuple[int, ...]:
        """The placeholder's bytes as numbers, signed as in Java."""
        return tuple(byte - 256 if byte > 127 else byte for byte in self.raw)


def is_unavailable(value: SparkColumn, wire: WireType, placeholder: str) -> SparkColumn:
    """Returns true if `value`, read as `wire_spark_type(wire)`, is the placeholder. Never null.

    Test this before decoding: as a date[] the placeholder decodes to plausible dates. Raises ConfigError for a `hex:`
    placeholder that is no hexadecimal.
    """
    return F.coalesce(_found(value, wire, _placeholder(placeholder)), F.lit(False))


def placeholder_encodings(placeholder: str) -> frozenset[str]:
    """Returns the JSON texts, without spaces, of the placeholder in columns of any type but maps."""
    return _placeholder_encodings(_placeholder(placeholder))


def _placeholder_encodings(known: _Placeholder) -> frozenset[str]:
    texts = [json.dumps(text, ensure_ascii=False) for text in (*known.texts, known.uuid)]
    numbers = (str(list(map(kind, known.numbers))).replace(" ", "") for kind in (int, float))
    return frozenset([*texts, *(f"[{text}]" for text in texts), *numbers])


def _placeholder(configured: str) -> _Placeholder:
    if not configured.startswith("hex:"):
        return _Placeholder(configured.encode())
    try:
        return _Placeholder(bytes.fromhex(configured.removeprefix("hex:")))
    except ValueError as error:
        raise ConfigError(
            "the unavailable value's placeholder begins with hex: but is no hexadecimal",
            "copy unavailable.value.placeholder from the connector's configuration",
        ) from error


def _found(value: SparkColumn, wire: WireType, placeholder: _Placeholder) -> SparkColumn:
    match wire.encoding:
        case Encoding.ARRAY:
            return _in_array(value, wire.elements[0], placeholder)
        case Encoding.MAP:
            return (F.size(value) == 1) & F.map_contains_key(value, placeholder.text)
        case Encoding.STRUCT | Encoding.DECIMAL_VARIABLE:
            return _in_struct(value, wire, placeholder)
        case Encoding.JSON_VALUE:
            mapped = json.dumps({placeholder.text: placeholder.text}, ensure_ascii=False, separators=(",", ":"))
            return F.to_json(value).isin(*_placeholder_encodings(placeholder), mapped)
        case encoding if encoding in _VARIANTS:
            return text_of(value).isin(*placeholder.texts)
        case encoding if encoding in (*NUMBERS, Encoding.BOOLEAN, Encoding.MAP_ENTRIES):
            return F.lit(False)
        case _:
            return value.isin(*placeholder.texts)


def _in_array(value: SparkColumn, element: WireType, placeholder: _Placeholder) -> SparkColumn:
    first = F.get(value, F.lit(0))
    found = _found(first, element, placeholder)
    if element.encoding is Encoding.TEXT:
        found |= first == placeholder.uuid
    single = (F.size(value) == 1) & F.coalesce(found, F.lit(False))
    if element.encoding not in (*NUMBERS, *_VARIANTS, Encoding.DATE_ANY):
        return single
    floats = element.encoding is Encoding.NUMBER and element.number in (Kind.FLOAT32, Kind.FLOAT64)
    variant = element.encoding in _VARIANTS or (element.checked and floats)
    numbers = F.transform(value, lambda one: F.try_variant_get(one, "$", "double")) if variant else value
    disguise = F.array(*(F.lit(float(number)) for number in placeholder.numbers))
    same = (F.size(value) == len(placeholder.raw)) & (numbers.try_cast("array<double>") == disguise)
    return single | same


def _in_struct(value: SparkColumn, wire: WireType, placeholder: _Placeholder) -> SparkColumn:
    if wire.encoding is Encoding.DECIMAL_VARIABLE:
        return value["value"].isin(*placeholder.texts)
    fields = zip(wire.names, wire.elements, strict=True)
    parts = [F.coalesce(_found(value.getField(name), part, placeholder), F.lit(False)) for name, part in fields]
    return F.array_contains(F.array(*parts), True) if parts else F.lit(False)
