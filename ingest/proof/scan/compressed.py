"""Decompression of streams, piece by piece. Each reader raises Unreadable for truncated or damaged input."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, cast

import pyarrow as pa

from ingest.proof.scan.places import Unreadable

PIECE = 4 << 20
_MAX_BLOCK = 256 << 20
_XERIAL = b"\x82SNAPPY\x00"
_FRAMED = b"\xff\x06\x00\x00sNaPpY"
_LZ4_BLOCK = b"LZ4Block"
DAMAGE = (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError, pa.ArrowException)


def decompressed(kind: str, file: BinaryIO) -> Iterator[bytes]:
    """Yields the decompressed content of a file of this kind, from its current position."""
    try:
        yield from _READERS[kind](file)
    except DAMAGE as failure:
        raise Unreadable(
            f"what is compressed by {kind} can't be read to its end ({type(failure).__name__})"
        ) from failure


def _standard(open_reader: Callable[[BinaryIO], BinaryIO]) -> Callable[[BinaryIO], Iterator[bytes]]:
    def pieces(file: BinaryIO) -> Iterator[bytes]:
        reader = open_reader(file)
        while piece := reader.read(PIECE):
            yield piece

    return pieces


def _gzip(file: BinaryIO) -> BinaryIO:
    # Without `mode` GzipFile takes the file's own mode, which for a temporary file is writing.
    return cast(BinaryIO, gzip.GzipFile(fileobj=file, mode="rb"))


def _arrow(codec: str) -> Callable[[BinaryIO], Iterator[bytes]]:
    def pieces(file: BinaryIO) -> Iterator[bytes]:
        reader = pa.CompressedInputStream(pa.PythonFile(file, "r"), codec)
        while piece := reader.read(PIECE):
            yield piece

    return pieces


def _snappy(file: BinaryIO) -> Iterator[bytes]:
    head = file.read(len(_FRAMED))
    if head.startswith(_XERIAL):
        file.read(16 - len(head))
        while size := file.read(4):
            yield _snappy_block(_read_exactly(file, int.from_bytes(size)))
    elif head == _FRAMED:
        yield from _snappy_frames(file)
    else:
        yield _snappy_block(head + file.read())


def _snappy_frames(file: BinaryIO) -> Iterator[bytes]:
    while head := file.read(4):
        body = _read_exactly(file, int.from_bytes(head[1:], "little"))
        if head[0] in (0, 1):
            yield _snappy_block(body[4:]) if head[0] == 0 else body[4:]
        elif head[0] < 0x80:
            raise Unreadable("a frame of snappy is of an unknown kind")


def _snappy_block(block: bytes) -> bytes:
    """Decompresses a block whose leading varint is the decompressed size."""
    size, shift = 0, 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return _block(block, size, "snappy")


def _lz4_blocks(file: BinaryIO) -> Iterator[bytes]:
    """Decompresses the stream format of lz4-java, which Spark uses for state: magic, token, both sizes and a checksum,
    then a block."""
    while magic := file.read(len(_LZ4_BLOCK)):
        if magic != _LZ4_BLOCK:
            raise Unreadable("a block of lz4 begins with something else")
        token, stored, size = (int.from_bytes(_read_exactly(file, n), "little") for n in (1, 4, 4))
        _read_exactly(file, 4)
        body = _read_exactly(file, stored)
        yield body if token & 0xF0 == 0x10 else _block(body, size, "lz4_raw")


def _block(block: bytes, size: int, codec: str) -> bytes:
    if size > _MAX_BLOCK:
        raise Unreadable(f"a block of {codec} says that it is larger than {_MAX_BLOCK} bytes")
    return bytes(pa.decompress(block, decompressed_size=size, codec=codec)) if size else b""


def _read_exactly(file: BinaryIO, size: int) -> bytes:
    if size > _MAX_BLOCK:
        raise Unreadable(f"a block says that it is larger than {_MAX_BLOCK} bytes")
    body = file.read(size)
    if len(body) < size:
        raise EOFError
    return body


_READERS: dict[str, Callable[[BinaryIO], Iterator[bytes]]] = {
    "gzip": _standard(_gzip),
    "bzip2": _standard(bz2.BZ2File),  # type: ignore[arg-type]
    "xz": _standard(lzma.LZMAFile),  # type: ignore[arg-type]
    "zstd": _arrow("zstd"),
    "lz4": _arrow("lz4"),
    "snappy": _snappy,
    "lz4 blocks": _lz4_blocks,
}
COMPRESSED = frozenset(_READERS)
