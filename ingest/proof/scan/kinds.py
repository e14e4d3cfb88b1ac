"""Detects the format of a file by its first bytes or, if these are not specific, by its name."""

from __future__ import annotations

import re

HEAD = 4096
"""Number of first bytes that are needed."""
_BY_FIRST_BYTES = (
    (b"PAR1", "parquet"),
    (b"PARE", "encrypted parquet"),
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x82SNAPPY\x00", "snappy"),
    (b"\xff\x06\x00\x00sNaPpY", "snappy"),
    (b"LZ4Block", "lz4 blocks"),
    (b"PK\x03\x04", "zip"),
    (b"crc\x00", "checksums"),
    *((first, "unknown") for first in (b"ORC", b"Obj\x01", b"%PDF-", b"7z\xbc\xaf", b"Rar!", b"\x1f\x9d")),
)
_SEGMENT = re.compile(r"\d{20}(\.log|-\d{10}\.checkpoint)(\.(deleted|cleaned|swap))?")
# Files of offsets, times and bits, which need no decoding.
_PLAIN_BINARY = re.compile(
    r"(?P<index>\d{20}\.(index|timeindex|snapshot|txnindex)(\.deleted)?)"
    r"|(?P<vector>(.*/)?deletion_vector_[0-9a-f-]{36}\.bin)"
)
_CURRENT_MAGIC = 2
_UNREADABLE = (".br", ".brotli", ".lzo", ".lzma", ".z")


def kind_of(name: str, head: bytes) -> str:
    """Returns the kind of a file; `unknown` if neither bytes nor name are known. `name`: without folders."""
    if not head:
        return "empty"
    if name.lower().endswith(_UNREADABLE):
        # Brotli has no first bytes of its own.
        return "unknown"
    for first, kind in _BY_FIRST_BYTES:
        if head.startswith(first):
            return kind
    if _SEGMENT.fullmatch(name):
        return "kafka segment" if len(head) > 16 and head[16] == _CURRENT_MAGIC else _segment_without_batches(head)
    plain = _PLAIN_BINARY.fullmatch(name)
    if plain is not None:
        return "kafka index" if plain["index"] else "deletion vector"
    return "text" if _is_utf8_text(head) else "unknown"


def _segment_without_batches(head: bytes) -> str:
    if not any(head):
        return "kafka segment"
    return "text" if _is_utf8_text(head) else "unknown"


def _is_utf8_text(head: bytes) -> bool:
    """Returns True for UTF-8 without control characters. The last character may be truncated."""
    if any(c < 32 and c not in b"\t\n\r\x0c\x1b" for c in head):
        return False
    for missing in range(4 if len(head) == HEAD else 1):
        try:
            head[: len(head) - missing].decode()
        except UnicodeDecodeError:
            continue
        return True
    return False
