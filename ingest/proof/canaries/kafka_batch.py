"""Kafka record batches (format v2), written byte by byte: a segment whose records have given values."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Sequence

import pyarrow as pa

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_TIME = 1_700_000_000_000


def segment(values: Sequence[bytes], codec: str) -> bytes:
    """Returns one batch. Its checksum is zero, because only the scanner reads it."""
    records = b"".join(_record(i, value) for i, value in enumerate(values))
    last = len(values) - 1
    rest = struct.pack(
        *(">ibIhiqqqhii", 0, 2, 0, CODECS.index(codec), last),
        *(_TIME, _TIME, -1, -1, -1, len(values)),
    )
    body = rest + _compressed(records, codec)
    return struct.pack(">qi", 0, len(body)) + body


def _record(delta: int, value: bytes) -> bytes:
    body = b"\x00" + _varint(0) + _varint(delta) + _varint(-1) + _varint(len(value)) + value + _varint(0)
    return _varint(len(body)) + body


def _varint(number: int) -> bytes:
    rest, out = number << 1 if number >= 0 else (-number << 1) - 1, bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])


def _compressed(records: bytes, codec: str) -> bytes:
    if codec == "none":
        return records
    if codec == "gzip":
        return gzip.compress(records)
    if codec == "snappy":
        return xerial(records)
    return bytes(pa.compress(records, codec=codec, asbytes=True))


def xerial(body: bytes) -> bytes:
    """Returns a stream as snappy-java writes it: 16 bytes of header, then blocks with their sizes."""
    block: bytes = pa.compress(body, codec="snappy", asbytes=True)
    return b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, len(block)) + block
