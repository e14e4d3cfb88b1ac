"""Finds the ID of a record's schema, in front of a key or value or in a header.

| where | bytes | whose |
|---|---|---|
| in front | 0, 4 bytes | Confluent's serializers, Apicurio's with `as-confluent` |
| in front | 0, 8 bytes | Apicurio's |
| header `__value_schema_id` | 0, 4 bytes; 1, 16 bytes of a GUID | Confluent's |
| header `apicurio.value.globalId`, `.contentId` | 8 bytes | Apicurio's |
| `{"schemaId":17,"payload":…}` | digits | Apicurio's `ExtJsonConverter` |

IDs begin at 1, so that the first four of eight bytes, all 0, are no ID of four. Keys have `key` for `value` in headers.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from pyspark.sql import Column
from pyspark.sql import functions as F

Part = Literal["key", "value"]
PrefixIds = Literal["content", "global"]

_SHORT, _LONG = 5, 9
"""Bytes of a prefix: 0 and an ID."""
_NO_SHORT_ID = b"\0" * _SHORT
_WITH_GUID = 1
_CONFLUENT, _GLOBAL, _CONTENT, _IN_JSON = b"h", b"g", b"c", b"j"
"""First byte of a frame that is no prefix."""
_JSON_FRAME = r'(?s)^\{"schemaId":(\d{1,18}),"payload":(.*)\}$'


class Lookup(StrEnum):
    """The kind of an ID, by which the registry finds a schema."""

    CONFLUENT = "confluent"
    GUID = "guid"
    GLOBAL = "global"
    CONTENT = "content"


@dataclass(frozen=True, order=True)
class SchemaId:
    """The ID of a schema in a registry. `value`: a number, or the text of a GUID."""

    lookup: Lookup
    value: str

    def __str__(self) -> str:
        return f"{self.lookup} {self.value}"


def schema_id(frame: bytes, prefix_ids: PrefixIds | None = None) -> SchemaId:
    """Returns the ID in a frame, as `frame_of` gives it.

    `prefix_ids`: the kind of Apicurio's IDs in front of a record. By default those of four bytes are Confluent's, those
    of eight bytes global ones."""
    tag, rest = frame[:1], frame[1:]
    if tag == _CONFLUENT:
        if rest[0] == _WITH_GUID:
            return SchemaId(Lookup.GUID, str(uuid.UUID(bytes=rest[1:17])))
        return SchemaId(Lookup.CONFLUENT, str(int.from_bytes(rest[1:5])))
    if tag in (_GLOBAL, _CONTENT):
        return SchemaId(Lookup.GLOBAL if tag == _GLOBAL else Lookup.CONTENT, str(int.from_bytes(rest)))
    number = rest.decode() if tag == _IN_JSON else str(int.from_bytes(rest))
    if prefix_ids is None and len(frame) == _SHORT and tag != _IN_JSON:
        return SchemaId(Lookup.CONFLUENT, number)
    return SchemaId(Lookup.CONTENT if prefix_ids == "content" else Lookup.GLOBAL, number)


def frame_of(part: Part) -> Column:
    """Returns the frame of a `RECORD`'s key or value: bytes that are equal where the schema's ID is. Null without an
    ID."""
    value, headers = F.col(part), F.col("headers")
    names = _header_tags(part)
    header = F.get(F.filter(headers, lambda one: one["key"].isin(*names)), F.lit(0))
    tag = F.create_map(*(F.lit(item) for pair in names.items() for item in pair))
    in_header = F.when(F.size(headers) > 0, F.concat(tag[header["key"]], header["value"]))
    short = F.substring(value, 1, _SHORT)
    prefix = F.when(short == F.lit(_NO_SHORT_ID), F.substring(value, 1, _LONG)).otherwise(short)
    in_front = F.when((F.length(value) >= _SHORT) & (F.substring(value, 1, 1) == F.lit(b"\0")), prefix)
    text = value.cast("string")
    number = F.nullif(F.regexp_extract(text, _JSON_FRAME, 1), F.lit("")).cast("binary")
    in_json = F.when(text.startswith('{"schemaId":'), F.concat(F.lit(_IN_JSON), number))
    return F.when(value.isNotNull(), F.coalesce(in_header, in_front, in_json))


def frame_in(part: Part, value: bytes | None, headers: Sequence[tuple[str, bytes]]) -> bytes | None:
    """Returns the frame of one record's key or value, as `frame_of` does."""
    if value is None:
        return None
    for name, content in headers:
        if name in _header_tags(part):
            return _header_tags(part)[name] + content
    if len(value) >= _SHORT and value[:1] == b"\0":
        return value[: _LONG if value[:_SHORT] == _NO_SHORT_ID else _SHORT]
    found = re.match(_JSON_FRAME, value.decode("latin-1"))
    return None if found is None else _IN_JSON + found[1].encode()


def _header_tags(part: Part) -> dict[str, bytes]:
    """Returns the names of headers with IDs, each with the first byte of its frames."""
    apicurio = f"apicurio.{part}."
    return {
        f"__{part}_schema_id": _CONFLUENT,
        f"{apicurio}globalId": _GLOBAL,
        f"{apicurio}contentId": _CONTENT,
    }


def body_of(part: Part, frame: bytes) -> Column:
    """Returns the bytes of a key or value without their `frame`."""
    value = F.col(part)
    if frame[:1] == b"\0":
        return F.substring(value, len(frame) + 1, 2**31 - 1)
    return F.regexp_extract(value.cast("string"), _JSON_FRAME, 2).cast("binary") if frame[:1] == _IN_JSON else value
