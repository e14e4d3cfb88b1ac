"""Changelog files as a source: JSON lines of `topic, partition, offset, timestamp, key, value`.

`key` and `value` are the record's, as JSON or null; `key_bytes` and `value_bytes` hold raw text that is no JSON. Their
text is copied verbatim from the line, so numbers keep all their digits.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from json.decoder import scanstring  # type: ignore[attr-defined]
from pathlib import Path
from random import Random
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ingest.changelog.envelope import RECORD
from ingest.errors import ConfigError
from ingest.sources.contract import OffsetRange, Offsets
from ingest.spark.local_rows import local_rows

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DECODER = json.JSONDecoder()
_BLANK = " \t\r\n"


@dataclass(frozen=True)
class Line:
    """A record and its 0-based number, counted through all files."""

    number: int
    topic: str
    partition: int
    offset: int
    timestamp: datetime | None
    headers: tuple[dict[str, Any], ...] | None
    key: bytes | None
    value: bytes | None


def lines(paths: Sequence[Path]) -> Iterator[Line]:
    """Yields the records of the files in order. Raises ConfigError with the file and line of a malformed record."""
    number = 0
    for path in paths:
        with path.open(encoding="utf-8") as file:
            for at, text in enumerate(file, start=1):
                if not text.strip():
                    continue
                try:
                    yield _line(number, _members(text))
                except (ValueError, KeyError, TypeError, IndexError) as error:
                    raise ConfigError(
                        f"{path}:{at} is no record ({type(error).__name__})",
                        'each line is {"topic":…, "partition":…, "offset":…, "key":…, "value":…}',
                    ) from error
                number += 1


def _members(text: str) -> dict[str, tuple[Any, str]]:
    """Returns member → (its value, its verbatim text) of a JSON object."""
    found: dict[str, tuple[Any, str]] = {}
    at = _skip(text, 0)
    if text[at] != "{":
        raise ValueError("not an object")
    at = _skip(text, at + 1)
    while text[at] != "}":
        if text[at] == ",":
            at = _skip(text, at + 1)
        if text[at] != '"':
            raise ValueError("no member")
        name, at = scanstring(text, at + 1)
        at = _skip(text, at)
        if text[at] != ":":
            raise ValueError("no colon")
        begin = _skip(text, at + 1)
        value, end = _DECODER.raw_decode(text, begin)
        found[name] = (value, text[begin:end])
        at = _skip(text, end)
    return found


def _skip(text: str, at: int) -> int:
    while text[at] in _BLANK:
        at += 1
    return at


def _line(number: int, members: dict[str, tuple[Any, str]]) -> Line:
    def plain(name: str, default: Any = None) -> Any:
        return members[name][0] if name in members else default

    def raw(name: str) -> bytes | None:
        if plain(f"{name}_bytes") is not None:
            return str(plain(f"{name}_bytes")).encode()
        value, text = members.get(name, (None, ""))
        return None if value is None else text.encode()

    stamp = plain("timestamp")
    headers = plain("headers")
    return Line(
        number,
        str(plain("topic")),
        int(plain("partition", 0)),
        int(members["offset"][0]),
        None if stamp is None else _EPOCH + timedelta(milliseconds=stamp),
        None if headers is None else tuple({"key": h["key"], "value": _header(h.get("value"))} for h in headers),
        raw("key"),
        raw("value"),
    )


def _header(value: Any) -> bytes | None:
    return None if value is None else (value if isinstance(value, str) else json.dumps(value)).encode()


def shuffled(records: Iterable[Line], seed: int, any_order: bool) -> list[Line]:
    """Returns the records in a random order: one that Kafka could deliver (each partition in offset order), or any."""
    random = Random(seed)
    ordered = list(records)
    if any_order:
        random.shuffle(ordered)
        return ordered
    queues: dict[tuple[str, int], list[Line]] = {}
    for record in ordered:
        queues.setdefault((record.topic, record.partition), []).append(record)
    turns = [name for name, queue in queues.items() for _ in queue]
    random.shuffle(turns)
    waiting = {name: iter(queue) for name, queue in queues.items()}
    return [next(waiting[name]) for name in turns]


@dataclass(frozen=True)
class _DeliveryRange(OffsetRange):
    """The records `first` ≤ number < `last` in their order of delivery; `start` and `end` hold their topics'
    offsets."""

    first: int = 0
    last: int = 0

    @property
    def size(self) -> int:
        """The number of records; offsets may have gaps."""
        return self.last - self.first


class FileSource:
    """Records in their order of delivery, without duplicates, in ranges of a given number of records."""

    def __init__(self, records: Sequence[Line]) -> None:
        once = {(r.topic, r.partition, r.offset): r for r in reversed(records)}
        self._records = [r for r in records if once[r.topic, r.partition, r.offset] is r]
        self._read = 0

    def pin_end(self) -> None:
        """Does nothing: the files don't grow."""

    def pending(self, captured: Offsets, limit: int) -> OffsetRange | None:
        if not self._read:
            self._read = self._captured_count(captured)
        first, last = self._read, min(self._read + limit, len(self._records))
        if first == last:
            return None
        start, end = Offsets(), Offsets()
        for record in self._records[first:last]:
            known = captured.get(record.topic, {}).get(record.partition, 0)
            start.setdefault(record.topic, {}).setdefault(record.partition, known)
            ends = end.setdefault(record.topic, {})
            ends[record.partition] = max(record.offset + 1, ends.get(record.partition, known))
        self._read = last
        return _DeliveryRange(start, end, {}, len(self._records) - last, first, last)

    def _captured_count(self, captured: Offsets) -> int:
        """Returns the number of records that an earlier run has captured; each partition was captured in offset
        order."""
        return sum(1 for r in self._records if r.offset < captured.get(r.topic, {}).get(r.partition, 0))

    def read(self, spark: SparkSession, span: OffsetRange) -> DataFrame:
        assert isinstance(span, _DeliveryRange)
        rows = [
            (r.topic, r.partition, r.offset, r.timestamp, r.headers, r.key, r.value)
            for r in self._records[span.first : span.last]
        ]
        return local_rows(spark, [dict(zip(RECORD.names, row, strict=True)) for row in rows], RECORD)
