"""Decompression of the record batches of a Kafka log segment (format v2).

https://kafka.apache.org/documentation/#recordbatch"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from ingest.proof.scan.compressed import decompressed
from ingest.proof.scan.places import Unreadable

_PREFIX = struct.Struct(">qi")
_REST = struct.Struct(">ibIhiqqqhii")
"""Fields after the length: leader epoch, magic, crc, attributes, last offset delta, times, producer, sequence,
records."""
_MAGIC = 2
_CODECS = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_MAX_BATCH = 1 << 30


@dataclass(frozen=True)
class RecordBatch:
    """The decompressed records of one batch. `begin`: its byte offset in the segment."""

    begin: int
    codec: str
    pieces: Iterator[bytes]


def compressed_batches(file: BinaryIO) -> Iterator[RecordBatch]:
    """Yields the compressed batches; the bytes of the segment show all others. Reads the file from its beginning.
    Raises Unreadable for anything but whole batches."""
    file.seek(0)
    begin = 0
    while head := file.read(_PREFIX.size):
        if not any(head):
            _require_zeros(file, begin)
            return
        body = _body(file, head, begin)
        magic, attributes = _REST.unpack_from(body)[1], _REST.unpack_from(body)[3]
        if magic != _MAGIC:
            raise Unreadable(f"at byte {begin} begin records of the older format v{magic}")
        codec = attributes & 7
        if codec:
            if codec not in _CODECS:
                raise Unreadable(f"the batch at byte {begin} is compressed by an unknown codec: {codec}")
            name = _CODECS[codec]
            yield RecordBatch(begin, name, decompressed(name, io.BytesIO(body[_REST.size :])))
        begin += _PREFIX.size + len(body)


def _body(file: BinaryIO, head: bytes, begin: int) -> bytes:
    if len(head) < _PREFIX.size:
        raise Unreadable(f"it ends within the batch at byte {begin}")
    size = _PREFIX.unpack(head)[1]
    if not _REST.size <= size <= _MAX_BATCH:
        raise Unreadable(f"at byte {begin} stands no batch of records")
    body = file.read(size)
    if len(body) < size:
        raise Unreadable(f"it ends within the batch at byte {begin}")
    return body


def _require_zeros(file: BinaryIO, begin: int) -> None:
    """Raises Unreadable if preallocated space after the last batch holds other bytes than zeros."""
    while piece := file.read(1 << 20):
        if any(piece):
            raise Unreadable(f"after byte {begin}, where its batches end, it goes on")
